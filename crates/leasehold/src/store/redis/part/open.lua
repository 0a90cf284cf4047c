-- open: reads the record. Takes `name`, the key; `found`, the string if the script has it already, or what it got instead
-- of one; `asked`, an id whose entry matters, or nil. Returns a refusal, or goes on with the locals below.
--
-- The shared parts (clock, open, settle, save) are put into each script as text, and are no functions: a function is made
-- anew at each call of a script, and costs more the more locals it shares. Twenty-seven of them cost 11 µs a call, this
-- way the parts cost what they do. They come *after* a script's fast way, which has returned by then.
--
-- THE RECORD, while nobody waits, is a string of fixed-width fields, so that no script formats or parses a number that
-- it does not need:
--
--     1-3     magic and version of the layout: lh1
--     4       state: H held, P pushed and not yet claimed, R marked for revocation, F free
--     5-20    token
--     21-84   grant id; in state F the one that was released last, or 64 dashes
--     85-92   length of the lease in ms
--     93-108  since: when the grant was made or last renewed, in µs
--     109-172 grant id that was released last before this grant, or 64 dashes; in state F it means nothing
--     173-    label
--
-- With the first waiter it becomes a hash, whose queue is a linked list: leave, look and hand-over cost the same with
-- ten waiters and with ten thousand. The last one out turns it back.
--
--     r      the string from above
--     m      1-5 entries, 6-10 strict ones, 11-26 kept until (µs), 27-90 head, 91-154 tail, 155-170 ticket of the tail;
--            171- lapses, oldest first, 48 bytes each: session, when its claim ran out (16)
--     e<id>  1-16 ticket, 17-24 lease, 25-32 claim, 33-48 time limit (0: none), 49-64 last seen, 65 L listens or P polls,
--            66 s strict or r relaxed, 67-130 the entry before (of the head: means nothing), 131- label
--     n<id>  the entry after
--
-- The key's time to live ends when the record may be forgotten: at the later of `keep` and token + R. A string does not
-- say until when it is kept: nothing reads that before it is set anew.
local NOBODY, ZEROS = '----------------------------------------------------------------', '0000000000000000'
local R_MS, R_US, SETTLE_STEPS, TICKET_STEPS, LAPSES, QUEUE_MAX = 60000, 60000000, 64, 64, 16, 10000
local sub, now_us = string.sub, tonumber(now)
local text, shape, meta, entry = found, 'string', nil, nil
if not text or #text == 0 then
  -- An error has no length.
  local got
  if asked then got = redis.pcall('HMGET', name, 'r', 'm', 'e' .. asked) else got = redis.pcall('HMGET', name, 'r', 'm') end
  if not got.err then
    text, meta, entry, shape = got[1], got[2], got[3], 'hash'
  elseif sub(got.err, 1, 9) ~= 'WRONGTYPE' then
    return got
  else
    text = redis.pcall('GET', name)
    if type(text) == 'table' then return 'FOREIGN ' .. redis.call('TYPE', name).ok end
  end
end
local state, token, id, length, since, prev, label = 'F', ZEROS, NOBODY, '00000000', ZEROS, NOBODY, ''
local count, strict, keep, head, tail, tail_ticket, lapses = 0, 0, nil, NOBODY, NOBODY, ZEROS, ''
if text then
  state = sub(text, 4, 4)
  if sub(text, 1, 3) ~= 'lh1' or not string.find('HPRF', state, 1, true) or #text < 172 then
    local version = string.match(text, '^lh(%d+)')
    return version and version ~= '1' and 'NEWER ' .. version or 'FOREIGN ' .. shape
  end
  token, id, length, since = sub(text, 5, 20), sub(text, 21, 84), sub(text, 85, 92), sub(text, 93, 108)
  prev, label = sub(text, 109, 172), sub(text, 173)
  if shape == 'hash' then
    if not meta or #meta < 170 then return 'FOREIGN hash' end
    count, strict, keep, head = tonumber(sub(meta, 1, 5)), tonumber(sub(meta, 6, 10)), sub(meta, 11, 26), sub(meta, 27, 90)
    tail, tail_ticket, lapses = sub(meta, 91, 154), sub(meta, 155, 170), sub(meta, 171)
  end
elseif redis.call('EXISTS', name) == 1 then
  return 'FOREIGN hash'
else
  shape = 'none'
end
-- What is to be written, beside the record and its queue's ends: fields by name, false for one that goes. What is to be
-- published: channel, text, channel, text. Whether there is more to settle; the claim of whoever is granted here.
local puts, told, rest, handed, ttl_changed = nil, nil, 'D', '-', false
