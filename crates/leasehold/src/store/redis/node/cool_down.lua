#!lua flags=allow-oom
-- cool_down: takes the vote back, and gives it to nobody for a while (P23). For an attempt without a vote, it is a
-- give_back.
--
-- KEYS     1 the record
-- ARGV     1 grant id (64)
--          2 the highest token (16) of a vote to take back: the vote of a later round stays
--          3 time in ms (8) during which nobody gets the vote
-- RETURNS  GIVEN … granted | GIVEN … queued | GIVEN … absent
--          FOREIGN type | NEWER version
-- EFFECTS  the vote cools down from now on; removes the entry; notifies the next waiters of the new end. A revoked vote is
--          given back at once, and the next waiter is called. The marker is not checked, because no vote is given.
-- RETRY    safe: a cool-down that has begun is not lengthened
-- COST     TIME, GET, SET; with a queue also ZREM, ZRANGE, PUBSUB, PUBLISH
--@clock
local name, found, asked, upto = KEYS[1], redis.pcall('GET', KEYS[1]), ARGV[1], ARGV[2]
--@open
local was = 'absent'
if state == 'F' or id ~= asked or token <= upto then
--@unlink
  local begins = state == 'H' and id == asked
  if begins then
    state, since, length = 'C', now, ARGV[3]
    local until_us = now_us + length * 1000 + R_US
    if keep + 0 < until_us then keep = string.format('%016.0f', until_us) end
  end
  if was_queued then was = 'queued' end
  if released == asked or begins then was = 'granted' end
  if state == 'R' and id == asked then state, was = 'F', 'granted' end
  if called == asked then called = nil end
  if was == 'granted' then released = asked end
  if was_queued or begins then
--@next
  end
end
--@settle
--@save
return 'GIVEN' .. said .. ' ' .. was
