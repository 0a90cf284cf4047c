-- open: reads the record. Takes `name`, the key; `asked`, an ID whose entry is needed, or nil; `found`, the result of
-- GET, or nil; and `got`, the result of HMGET for r, q and that entry, or nil. Returns a refusal, or sets the locals below.
--
-- The shared parts (clock, open, settle, save, …) are put into each script as text. They are no functions, because Lua
-- makes a function anew at each call of a script, and each shared local adds to its cost: twenty-seven locals cost 11
-- µs a call. The parts come *after* the short path of a script, which has returned by then. Strings are expensive as
-- well: each byte (this Lua hashes whole strings), and each piece. So fields that do not change are not taken apart.
--
-- THE RECORD is a string of fixed-width fields, so that no script formats or parses a number that it does not need:
--
--     1-3     magic and version of the layout: lh1
--     4       state: H held, P pushed and not yet claimed, R marked for revocation, C given back and cooling down, F free
--     5-20    token; in state C the highest token that was used
--     21-84   grant ID; in state F the ID that was released last, or 64 dashes
--     85-92   length of the lease in ms
--     93-108  since: the time when the grant was made or last renewed, in µs
--     109-172 grant ID that was released last before this grant, or 64 dashes; from here on unused in state F
--     173-180 number of tokens that are reserved for the grant, its own included (P19)
--     181-183 bytes of the label; the label
--
-- The first waiter makes the record a hash, in which the queue is a linked list: so leave, re-check and hand-over cost the
-- same with two waiters and with ten thousand. The release that finds no waiter makes it a string again.
--
--     r       the record from above
--     q       1-16 keep: the time until which the record is kept (µs), 17-80 head, 81-85 number of entries, 86-90 number of
--             strict entries, 91-106 ticket of the tail, 107-170 tail; then lapses, oldest first, each: session (32), time
--             when its claim ran out (16)
--     e<id>   1-16 time limit (0: none), 17-32 last seen, 33-48 ticket, 49-56 claim, 57 L listens or P polls, 58 s strict
--             or r relaxed, 59-66 lease, 67-130 the entry before (unused in the head), 131-138 number of requested tokens,
--             139-141 bytes of the label; the label
--     n<id>   the entry after
--
-- The number of tokens and the label stay together in one string from the request to the entry and to the record: each more
-- piece to join costs as much as a field.
--
-- The key's time to live ends when the record may be forgotten: at the later of `keep` and token + R. While the lease is
-- held, `keep` is also after the end of the range. A string does not contain `keep`. It is never kept longer than
-- part/last.lua computes, and `keep` gets that value when a queue begins.
local NOBODY, ZEROS = '----------------------------------------------------------------', '0000000000000000'
local R_MS, R_US, SETTLE_STEPS, TICKET_STEPS, LAPSES, QUEUE_MAX = 60000, 60000000, 64, 64, 16, 10000
local LEAD_US, REVOKE_NOTIFIED = 1000000, 2
local sub, now_us = string.sub, tonumber(now)
local text, is_hash, queue, entry = found, false, nil, nil
-- An error has no length.
if got or text == nil or text and #text == 0 then
  if not got and asked then
    got = redis.pcall('HMGET', name, 'r', 'q', 'e' .. asked)
  elseif not got then
    got = redis.pcall('HMGET', name, 'r', 'q')
  end
  if not got.err then
    text, queue, entry, is_hash = got[1], got[2], got[3], true
    if not text and redis.call('EXISTS', name) == 1 then return 'FOREIGN hash' end
  elseif sub(got.err, 1, 9) ~= 'WRONGTYPE' then
    return got
  else
    text = redis.pcall('GET', name)
    if text and #text == 0 then
      return text.err and sub(text.err, 1, 9) ~= 'WRONGTYPE' and text or 'FOREIGN ' .. redis.call('TYPE', name).ok
    end
  end
end
-- `rear` is the end of the record: the previous grant ID, the number of tokens, and the label with its length.
local state, token, id, length, since, rear = 'F', ZEROS, NOBODY, '00000000', ZEROS, NOBODY .. '00000001000'
-- Entries * 100000 + strict entries.
local counts, keep, head, tail, tail_ticket, lapses = 0, nil, NOBODY, NOBODY, ZEROS, ''
if text then
  state = string.match(text, '^lh1([HPRCF])')
  if not state or #text < 183 or is_hash and (not queue or #queue < 170) then
    local version = string.match(text, '^lh(%d+)')
    return version and version ~= '1' and 'NEWER ' .. version or 'FOREIGN ' .. redis.call('TYPE', name).ok
  end
  token, id, length, since = sub(text, 5, 20), sub(text, 21, 84), sub(text, 85, 92), sub(text, 93, 108)
  rear = sub(text, 109)
  if is_hash then
    keep, head, counts = sub(queue, 1, 16), sub(queue, 17, 80), tonumber(sub(queue, 81, 90))
    tail_ticket, tail, lapses = sub(queue, 91, 106), sub(queue, 107, 170), sub(queue, 171)
  end
end
-- The prefix of the channel names of sessions: app:lh1:inbox: for the record app:lh1:{…}. No key prefix has a brace in it.
local inboxes = string.match(name, '^[^{]*') .. 'inbox:'
-- `puts`: fields of the hash to write, beside r and q, by name; false removes a field. `told`: messages to publish:
-- channel, text, channel, text. `rest`: M if there is more to settle. `handed`: the claim of a grant that is made here.
local puts, told, rest, handed, ttl_changed = nil, nil, 'D', '-', false
