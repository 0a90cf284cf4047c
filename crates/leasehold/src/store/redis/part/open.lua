-- open: reads the record. Takes `name`, the key; `asked`, an ID whose entry is needed, or nil; `found`, the result of
-- GET, or nil; and `got`, the result of HMGET for r, q and that entry, or nil. Returns a refusal, or sets the locals below.
--
-- The shared parts (clock, open, settle, save, …) are put into each script as text. They are not functions, because Lua
-- makes a function anew at each call of a script, and each shared local adds to its cost: 27 locals cost 11 µs a call. The
-- parts come *after* the short path of a script, which has returned by then. Strings are expensive as well: each byte
-- (this Lua hashes whole strings), and each piece. So fields that do not change stay joined.
--
-- THE RECORD is a string of fixed-width fields, so that no script formats or parses a number that it does not need. Its
-- layout is RECORD. The layouts are in layout.rs: a name such as RECORD.length becomes the positions of that field before
-- the script is sent. docs/PROTOCOL.md has them as tables.
--
-- The first waiter makes the record a hash, in which the queue is a linked list: so leave, re-check and hand-over cost the
-- same with two waiters and with ten thousand. The release that finds no waiter makes it a string again.
--
--     r       RECORD: the record from above
--     q       QUEUE: the ends of the queue
--     e<id>   ENTRY: an entry
--     n<id>   the grant ID of the entry after
--
-- The key's time to live ends when the record may be forgotten: at the later of `keep` and token + R. While the lease is
-- held, `keep` is also after the end of the range. A string does not contain `keep`. It is never kept longer than
-- part/last.lua computes, and `keep` gets that value when a queue begins.
local NOBODY, ZEROS = '----------------------------------------------------------------', '0000000000000000'
local R_MS, R_US, SETTLE_STEPS, TICKET_STEPS, LAPSES, QUEUE_MAX = 60000, 60000000, 64, 64, 16, 10000
local LEAD_US, REVOKE_NOTIFIED = 1000000, 2
local sub, now_us = string.sub, tonumber(now)
local text, is_hash, queue, entry = found, false, nil, nil
--@fetch
-- `rear` is the end of the record: the previous grant ID, the number of tokens, and the label with its length.
local state, token, id, length, since, rear = 'F', ZEROS, NOBODY, '00000000', ZEROS, NOBODY .. '00000001000'
-- Entries * 100000 + strict entries.
local counts, keep, head, tail, tail_ticket, lapses = 0, nil, NOBODY, NOBODY, ZEROS, ''
--@cut
-- The prefix of the channel names of sessions: app:lh1:inbox: for the record app:lh1:{…}. No key prefix has a brace in it.
local inboxes = string.match(name, '^[^{]*') .. 'inbox:'
-- `puts`: fields of the hash to write, besides r and q, by name; false removes a field. `told`: messages to publish:
-- channel, text, channel, text. `rest`: M if there is more to settle. `handed`: the claim of a grant that is made here.
local puts, told, rest, handed, ttl_changed = nil, nil, 'D', '-', false
