-- open: reads the record. Takes `name`, the key; `found`, what GET gave, or nil if the script has not asked; `asked`, an
-- id whose entry matters, or nil. Returns a refusal, or goes on with the locals below.
--
-- The shared parts (clock, open, settle, save) are put into each script as text, and are no functions: a function is made
-- anew at each call of a script, and costs more the more locals it shares. Twenty-seven of them cost 11 µs a call. They
-- come *after* a script's fast way, which has returned by then.
--
-- THE RECORD is a string of fixed-width fields, so that no script formats or parses a number that it does not need:
--
--     1-3     magic and version of the layout: lh1
--     4       state: H held, P pushed and not yet claimed, R marked for revocation, F free; in small letters (h p r f) if
--             a queue follows the label
--     5-20    token
--     21-84   grant id; in state F the one that was released last, or 64 dashes
--     85-92   length of the lease in ms
--     93-108  since: when the grant was made or last renewed, in µs
--     109-172 grant id that was released last before this grant, or 64 dashes; in state F it means nothing
--     173-175 bytes of the label; the label
--
-- A queue of up to INLINE_MAX waiters follows it: at that size one value that is read and written whole costs half of
-- what fields of a hash do.
--
--     1-16    keep: until when the record is kept (µs)
--     17-21   entries, 22-26 strict ones, 27-42 ticket of the last
--     43-44   lapses, then each, oldest first: session (32), when its claim ran out (16)
--             then the entries, each: grant id (64) and
--     1-16    ticket, 17-24 lease, 25-32 claim, 33-48 time limit (0: none), 49-64 last seen, 65 L listens or P polls,
--             66 s strict or r relaxed, 67-69 bytes of the label; the label
--
-- With one waiter more the record becomes a hash, whose queue is a linked list: leave, look and hand-over cost the same
-- with a hundred waiters and with ten thousand. The last one out turns it back.
--
--     r       the record from above, without a queue
--     m       1-5 entries, 6-10 strict ones, 11-26 keep, 27-90 head, 91-154 tail, 155-170 ticket of the tail, lapses
--     e<id>   an entry from above, and after its label the id of the one before (of the head: means nothing)
--     n<id>   the id of the one after
--
-- The key's time to live ends when the record may be forgotten: at the later of `keep` and token + R. Without a queue the
-- record does not say until when it is kept: nothing reads that before it is set anew.
local NOBODY, ZEROS = '----------------------------------------------------------------', '0000000000000000'
local R_MS, R_US, SETTLE_STEPS, TICKET_STEPS, LAPSES, QUEUE_MAX = 60000, 60000000, 64, 64, 16, 10000
local INLINE_MAX, sub, now_us = 64, string.sub, tonumber(now)
local text, is_hash, meta, entry = found, false, nil, nil
if text == nil then text = redis.pcall('GET', name) end
if text and #text == 0 then
  -- An error has no length. It may be one of type: a hash.
  if text.err and sub(text.err, 1, 9) ~= 'WRONGTYPE' then return text end
  local got
  if asked then got = redis.pcall('HMGET', name, 'r', 'm', 'e' .. asked) else got = redis.pcall('HMGET', name, 'r', 'm') end
  if got.err and sub(got.err, 1, 9) ~= 'WRONGTYPE' then return got end
  if not got[1] then return 'FOREIGN ' .. redis.call('TYPE', name).ok end
  text, meta, entry, is_hash = got[1], got[2], got[3], true
end
local state, token, id, length, since, prev, label = 'F', ZEROS, NOBODY, '00000000', ZEROS, NOBODY, ''
local count, strict, keep, head, tail, tail_ticket, lapses = 0, 0, nil, NOBODY, NOBODY, ZEROS, ''
-- The entries, if they are in the record; where the one asked for begins, and the one before.
local queue, at_entry, at_before = '', nil, nil
if text then
  state = string.match(text, '^lh1([HPRFhprf])')
  if not state or #text < 175 then
    local version = string.match(text, '^lh(%d+)')
    return version and version ~= '1' and 'NEWER ' .. version or 'FOREIGN ' .. redis.call('TYPE', name).ok
  end
  token, id, length, since = sub(text, 5, 20), sub(text, 21, 84), sub(text, 85, 92), sub(text, 93, 108)
  local at = 176 + sub(text, 173, 175)
  prev, label = sub(text, 109, 172), sub(text, 176, at - 1)
  if is_hash then
    if not meta or #meta < 170 then return 'FOREIGN hash' end
    count, strict, keep, head = tonumber(sub(meta, 1, 5)), tonumber(sub(meta, 6, 10)), sub(meta, 11, 26), sub(meta, 27, 90)
    tail, tail_ticket, lapses, queue = sub(meta, 91, 154), sub(meta, 155, 170), sub(meta, 171), nil
  elseif at <= #text then
    state, keep, count, strict = string.upper(state), sub(text, at, at + 15), tonumber(sub(text, at + 16, at + 20)), tonumber(sub(text, at + 21, at + 25))
    tail_ticket, lapses = sub(text, at + 26, at + 41), sub(text, at + 44, at + 43 + 48 * sub(text, at + 42, at + 43))
    queue = sub(text, at + 44 + #lapses)
    if asked and string.find(queue, asked, 1, true) then
      -- Somewhere in the queue, perhaps in a label.
      at_entry = 1
      while at_entry and sub(queue, at_entry, at_entry + 63) ~= asked do
        at_before, at_entry = at_entry, at_entry + 133 + sub(queue, at_entry + 130, at_entry + 132)
        if at_entry > #queue then at_entry = nil end
      end
      if at_entry then entry = sub(queue, at_entry + 64, at_entry + 132 + sub(queue, at_entry + 130, at_entry + 132)) end
    end
  end
end
-- What is to be written of a hash, beside r and m: fields by name, false for one that goes. What is to be published:
-- channel, text, channel, text. Whether there is more to settle; the claim of whoever is granted here.
local puts, told, rest, handed, ttl_changed = nil, nil, 'D', '-', false
