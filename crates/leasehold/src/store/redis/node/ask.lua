#!lua
-- ask: takes the vote, for a token that the client proposes; or a place in the queue.
--
-- KEYS     1 the record
--          2 the marker
-- ARGV     1 the marker as the client has seen it
--          2 grant id (64)
--          3 token (16)
--          4 lease in ms (8)
--          5 number of tokens (8), bytes of the label (3), and the label
--          6 not_after in µs (16): after this time nothing is done (P4)
--          7 the last of the tokens (16)
--          8 for a place in the queue: ticket (16), s strict or r relaxed; absent: none
-- RETURNS  G and 16 digits: granted now, as requested. This is the server's time. Nobody waits
--          GRANTED … token range since length | REFUSED … public-id since length | REFUSED … - until 0 (somebody is called)
--          BELOW … | FAR … | LATE … | FULL …
--          UNMARKED time | RESTING time until | FOREIGN type | NEWER version
-- EFFECTS  gives the vote, or makes the entry; settles; notifies the holder of a range when somebody begins to wait (P9).
--          Not `allow-oom`: if the memory is full, the server refuses the script before it begins.
-- RETRY    safe: an ID that has the vote gets it again, for the token of the first time; an ID that waits keeps its place
-- COST     GET, TIME, GET, SET. Refused with a wait: ZRANGE, ZADD, SET, PEXPIRE the first time, later ZMSCORE.
--          Behind a call that has lapsed: ZMSCORE, ZREM, ZRANGE
--@clock
local marker, seen = KEYS[2], ARGV[1]
--@marked
local found, ahead_us = redis.pcall('GET', KEYS[1]), ARGV[3] - now
local is_near = ahead_us <= 10000000 and ahead_us >= -10000000
if is_near and now <= ARGV[6] then
--@vote
end
local name, asked, wanted, lease, tail, wait = KEYS[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[8]
--@open
local word, is_known = 'VOTE', false
if now > ARGV[6] then
  word = 'LATE'
elseif state == 'C' or state ~= 'F' and id ~= asked then
  word = 'REFUSED'
elseif state ~= 'F' then
  -- A later round of the attempt that has the vote is a give-back and a new request in one.
  if wanted <= token or wanted <= highest or not is_near then word = 'GRANTED' end
elseif called and called_until > now and sub(called, ID.session) ~= sub(asked, ID.session)
  and (not wait or sub(wait, WAIT.ticket) > called_ticket) then
  word = 'REFUSED'
elseif not is_near then
  word = 'FAR'
elseif wanted <= highest then
  word = 'BELOW'
end
local refused = word == 'REFUSED' and (state ~= 'F' and ' ' .. sub(id, ID.public) .. ' ' .. since .. ' ' .. length
  or ' - ' .. called_until .. ' 00000000')
if word == 'REFUSED' and wait and others ~= 'N' then
  local at = redis.call('ZMSCORE', queue, asked .. 's', asked .. 'r')
  local ticket = sub(wait, WAIT.ticket) + 0
  is_known = at[1] and at[1] + 0 == ticket or at[2] and at[2] + 0 == ticket
  if not is_known and redis.call('ZCARD', queue) >= QUEUE_MAX then
    word = 'FULL'
  elseif not is_known and (at[1] or at[2]) then
--@unlink
  end
end
if word == 'REFUSED' and wait and not is_known then
--@enqueue
elseif word == 'VOTE' then
--@unlink
--@lapse
  word = 'GRANTED'
  local allowed = math.max(LEAD_US - ahead_us, 1)
  if sub(tail, TAIL.range) + 0 > allowed then
--&
    tail = string.format('%08.0f', allowed) .. sub(tail, TAIL.range.behind) end
  local spare_us = keep == ZEROS and 0 or SPARE_US
--@give
end
--@settle
--@save
if word == 'GRANTED' then
  return word .. said .. ' ' .. token .. ' ' .. sub(rear, TAIL.range) .. ' ' .. since .. ' ' .. length
end
if word == 'REFUSED' then return word .. said .. refused end
return word .. said
