-- open: reads the record. Takes `name`, the key; `asked`, an id whose entry matters, or nil; and what the script has got
-- already, or nil: `found` by GET, `got` by HMGET r, q and the entry asked for. Returns a refusal, or goes on with the
-- locals below.
--
-- The shared parts (clock, open, settle, save, …) are put into each script as text, and are no functions: a function is
-- made anew at each call of a script, and costs more the more locals it shares. Twenty-seven of them cost 11 µs a call.
-- They come *after* a script's fast way, which has returned by then. What else costs is to make strings, by the byte (this Lua
-- hashes each whole) and by the piece: fields that stay are not taken apart.
--
-- THE RECORD is a string of fixed-width fields, so that no script formats or parses a number that it does not need:
--
--     1-3     magic and version of the layout: lh1
--     4       state: H held, P pushed and not yet claimed, R marked for revocation, C given back and cooling down, F free
--     5-20    token; in state C the highest that was used
--     21-84   grant id; in state F the one that was released last, or 64 dashes
--     85-92   length of the lease in ms
--     93-108  since: when the grant was made or last renewed, in µs
--     109-172 grant id that was released last before this grant, or 64 dashes; from here on it means nothing in state F
--     173-180 how many tokens are reserved for the grant, its own included (P19)
--     181-183 bytes of the label; the label
--
-- The first waiter makes it a hash, whose queue is a linked list: leave, look and hand-over cost the same with two waiters
-- and with ten thousand. The release that finds nobody waiting makes it a string again.
--
--     r       the record from above
--     q       1-16 keep: until when the record is kept (µs), 17-80 head, 81-85 entries, 86-90 strict ones, 91-106 ticket of
--             the tail, 107-170 tail; lapses, oldest first, each: session (32), when its claim ran out (16)
--     e<id>   1-16 time limit (0: none), 17-32 last seen, 33-48 ticket, 49-56 claim, 57 L listens or P polls, 58 s strict
--             or r relaxed, 59-66 lease, 67-130 the entry before (of the head: means nothing), 131-138 how many tokens it
--             asks for, 139-141 bytes of the label; the label
--     n<id>   the entry after
--
-- What comes as one, how many tokens and the label, goes as one from request to entry to record: a piece more to join costs
-- as much as a field.
--
-- The key's time to live ends when the record may be forgotten: at the later of `keep` and token + R. While it is held,
-- `keep` is beyond the end of the range, too. A string does not say until when it is kept: never longer than part/last.lua
-- has it, and that is what it is set to where a queue begins.
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
-- `rear` is what comes after the lease: the grant id before, how many tokens, and the label with its length.
local state, token, id, length, since, rear = 'F', ZEROS, NOBODY, '00000000', ZEROS, NOBODY .. '00000001000'
-- Entries * 100000 + strict ones.
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
-- What goes before a session's id in the name of its channel: app:lh1:inbox: for the record app:lh1:{…}. No prefix has a
-- brace.
local inboxes = string.match(name, '^[^{]*') .. 'inbox:'
-- What is to be written of a hash, beside r and q: fields by name, false for one that goes. What is to be published:
-- channel, text, channel, text. Whether there is more to settle; the claim of whoever is granted here.
local puts, told, rest, handed, ttl_changed = nil, nil, 'D', '-', false
