#!lua flags=allow-oom
-- give_back: the vote is not needed any more, nor is the place in the queue; or another place is.
--
-- KEYS     1 the record
-- ARGV     1 grant id (64)
--          2 up to the vote for this token (16): that of a later round stays
--          3 the place to wait at from now on: ticket (16), s strict or r relaxed; absent: it is over
-- RETURNS  B and twice 16 digits: it had the vote, this is the server's time and the highest token, nobody waits
--          GIVEN … granted | GIVEN … queued | GIVEN … absent
--          FOREIGN type | NEWER version
-- EFFECTS  takes the vote and the entry; calls the next one. Of a vote that is marked or cools down it notifies the
--          waiters that are next now (P10, P23). Whatever the marker says: nothing is given by it.
-- RETRY    safe: a repeat answers the same, while nobody else has given back
-- COST     TIME, GET, SET; with a queue ZREM, ZRANGE, PUBSUB, PUBLISH more
--@clock
local found = redis.pcall('GET', KEYS[1])
-- An error has no length.
if found and #found > 216 and not ARGV[3] then
  local sub = string.sub
  if string.find(found, '^lq1[HR]N%-') and sub(found, 103, 166) == ARGV[1] and sub(found, 167, 182) <= ARGV[2]
    and sub(found, 183, 198) + sub(found, 199, 206) * 1000 > now + 0 then
    redis.call('SET', KEYS[1], 'lq1FN-' .. sub(found, 7, 38) .. ARGV[1], 'KEEPTTL')
    return 'B' .. now .. sub(found, 7, 22)
  end
end
local name, asked, upto, wait = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
--@open
local was = 'absent'
if state == 'F' or id ~= asked or token <= upto then
--@unlink
  if was_queued then was = 'queued' end
  -- The one that has given back last says so again: its first answer was lost.
  if released == asked then was = 'granted' end
  if state ~= 'F' and state ~= 'C' and id == asked then state, was = 'F', 'granted' end
  if not wait then
    -- Whoever is next does not wait for one who has gone.
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
