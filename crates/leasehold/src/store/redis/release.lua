#!lua flags=allow-oom
-- release: give the lease back. The next live waiter holds before this returns, and is told last.
--
-- KEYS     1 the record
-- ARGV     1 token (16) and grant id (64), both compared
--          2 guess: n if nobody is known to wait, else c
--          3 what goes before a session's id in the name of its inbox
-- RETURNS  RELEASED alone: nobody waited, and the time was not asked for
--          RELEASED … | NOTHELD …, after `finish`
--          FOREIGN type | NEWER version
-- EFFECTS  frees the record, or makes the next waiter its holder and publishes that. The key stays for R, with its token:
--          a repeat hears RELEASED, and tokens do not fall behind a clock that steps back.
-- RETRY    safe: a repeat of the last release answers RELEASED again (P3)
-- COST     GET, SETRANGE; with a queue HMGET, TIME, HMGET, PUBSUB NUMSUB, HDEL, HSET, PUBLISH, and two calls more for
--          each dead waiter, up to 64
local mine, inbox = ARGV[1], ARGV[3]
local found
if ARGV[2] == 'n' then
  found = redis.pcall('GET', KEYS[1])
  if type(found) == 'table' then
    found = nil
  elseif found and string.sub(found, 21, 100) == mine then
    local begin = string.sub(found, 1, 4)
    -- A lease longer than R set a time to live that is longer than a free record needs.
    if (begin == 'lh1H' or begin == 'lh1P') and string.sub(found, 101, 108) <= '00060000' then
      redis.call('SETRANGE', KEYS[1], '3', 'F')
      return 'RELEASED'
    end
  end
end
local clock = redis.call('TIME')
local now = clock[1] .. string.sub('00000' .. clock[2], -6)
--@record
local refusal = open(KEYS[1], found, '')
if refusal then return refusal end
local who = sub(mine, 17)
-- What is given back is not ended for its age first: it ends here anyway, and who comes next is the same.
if state ~= 'F' and id == who and token == sub(mine, 1, 16) then
  give_back()
  return finish('RELEASED')
end
local repeated = released() == who
settle()
return finish(repeated and 'RELEASED' or 'NOTHELD')
