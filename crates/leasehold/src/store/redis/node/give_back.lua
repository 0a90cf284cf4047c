#!lua flags=allow-oom
-- give_back: takes back the vote and the place in the queue, or moves to another place.
--
-- KEYS     1 the record
-- ARGV     1 grant id (64)
--          2 the highest token (16) of a vote to take back: the vote of a later round stays
--          3 the place in the queue from now on: ticket (16), s strict or r relaxed; absent: none
-- RETURNS  B and twice 16 digits: it had the vote. These are the server's time and the highest token. Nobody waits
--          GIVEN … granted | GIVEN … queued | GIVEN … absent
--          FOREIGN type | NEWER version
-- EFFECTS  takes the vote and the entry back; calls the next waiter. If the vote is marked or cools down, notifies the
--          waiters that are next now (P10, P23). The marker is not checked, because no vote is given.
-- RETRY    safe: a repeat returns the same, while nobody else has given back
-- COST     TIME, GET, SET; with a queue also ZREM, ZRANGE, PUBSUB, PUBLISH
--@clock
local found = redis.pcall('GET', KEYS[1])
-- An error is a table: its # is 0.
if found and #found > VOTED.short and not ARGV[3] then
  local sub = string.sub
  if string.find(found, '^lq1[HR]N%-') and sub(found, VOTED.id) == ARGV[1] and sub(found, VOTED.token) <= ARGV[2]
    and sub(found, VOTED.since) + sub(found, VOTED.length) * 1000 > now + 0 then
    redis.call('SET', KEYS[1], 'lq1FN-' .. sub(found, NODE.highest.to.keep) .. ARGV[1], 'KEEPTTL')
    return 'B' .. now .. sub(found, NODE.highest)
  end
end
local name, asked, upto, wait = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
--@open
local was = 'absent'
if state == 'F' or id ~= asked or token <= upto then
--@unlink
  if was_queued then was = 'queued' end
  -- The attempt that gave back last does so again: its first reply was lost.
  if released == asked then was = 'granted' end
  if state ~= 'F' and state ~= 'C' and id == asked then state, was = 'F', 'granted' end
  if not wait then
    -- The next waiter must not wait for the call of a waiter that has gone.
    if called == asked then called = nil end
    if was == 'granted' then released = asked end
    if was_queued then
--@next
    end
  elseif others == 'N' or redis.call('ZCARD', queue) < QUEUE_MAX then
--@enqueue
  end
end
--@settle
--@save
return 'GIVEN' .. said .. ' ' .. was
