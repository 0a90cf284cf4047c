#!lua flags=allow-oom
-- revoke: ask the holder to stop, and end its lease after the grace (P10).
--
-- KEYS     1 the record
-- ARGV     1 token (16) and public part of the grant id (48), as the caller saw them: a later holder is not meant
--          2 grace in ms
-- RETURNS  REVOKING … left | NOTHELD …, after `finish`
--          FOREIGN type | NEWER version
-- EFFECTS  marks the grant and shortens its lease to the grace; tells the holder; settles, so that with a grace of 0 the
--          next waiter holds before this returns. `allow-oom`: an operator who clears a full memory needs it.
-- RETRY    safe: a grant that is marked already is marked again, and its lease never grows
-- COST     TIME, HMGET, HSET, PUBLISH; a hand-over as in release
--@clock
--@record
local refusal = open(KEYS[1], nil, '')
if refusal then return refusal end
settle()
if state == 'F' or token .. sub(id, 1, 48) ~= ARGV[1] then return finish('NOTHELD') end
local last_us = math.min(end_us(), now_us + number(ARGV[2]) * 1000)
-- A grant from "the future" (the clock stepped back) is dated from now, so that the grace is the grace.
if since > now then since = now end
length, state = format('%08.0f', math.floor((last_us - number(since)) / 1000)), 'R'
local left_us = left()
told[#told + 1] = sub(id, 1, 32)
told[#told + 1] = 'lh1 R ' .. id .. ' ' .. token .. ' ' .. left_us .. ' ' .. now .. ' N D ' .. key
settle()
return finish('REVOKING', left_us)
