#!lua flags=allow-oom
-- give_back: takes back the vote and the place in the queue, or moves to another place.
--
-- KEYS     1 the record
-- ARGV     1 grant id (64)
--          2 the highest token (16) of a vote to take back: the vote of a later round stays
--          3 the place in the queue from now on: ticket (16), s strict or r relaxed; empty or absent: none
--          4 for a pause: nobody is called now, and this is the time in µs after which the next waiters ask. 0: they know
-- RETURNS  B and twice 16 digits: it had the vote. These are the server's time and the highest token. Nobody waits
--          GIVEN … granted | GIVEN … queued | GIVEN … absent
--          FOREIGN type | NEWER version
-- EFFECTS  takes the vote and the entry back; calls the next waiter. If the vote is marked or cools down, or if the client
--          pauses, notifies the waiters that are next now (P10, P23). The marker is not checked, because no vote is given.
-- RETRY    safe: a repeat returns the same, while nobody else has given back
-- COST     TIME, GET, SET; with a queue also ZREM, ZRANGE, PUBSUB, PUBLISH, but not at the later pauses of a run
--@clock
local found = redis.pcall('GET', KEYS[1])
-- The short path: the attempt has the vote. While others wait, only a later pause of a run is short (ARGV[4] is 0): it
-- notifies nobody. An error is a table: its # is 0.
if found and #found > VOTED.short and (not ARGV[3] or ARGV[4]) then
  local sub = string.sub
  if string.find(found, ARGV[4] == '0' and '^lq1[HR][NO]%-' or '^lq1[HR]N%-')
    and sub(found, VOTED.id) == ARGV[1] and sub(found, VOTED.token) <= ARGV[2]
    and sub(found, VOTED.since) + sub(found, VOTED.length) * 1000 > now + 0 then
    local others, highest = sub(found, NODE.waiters), sub(found, NODE.highest)
    redis.call('SET', KEYS[1], 'lq1F' .. others .. '-' .. sub(found, NODE.highest.to.keep) .. ARGV[1], 'KEEPTTL')
    if others == 'O' then return 'GIVEN ' .. now .. ' ' .. highest .. ' O - granted' end
    return 'B' .. now .. highest
  end
end
local name, asked, upto, wait = KEYS[1], ARGV[1], ARGV[2], ARGV[3] ~= '' and ARGV[3]
--@open
local was, ended, pauses = 'absent', false, false
if state == 'F' or id ~= asked or token <= upto then
--@unlink
  if was_queued then was = 'queued' end
  -- The attempt that gave back last does so again: its first reply was lost.
  if released == asked then was = 'granted' end
  if state ~= 'F' and state ~= 'C' and id == asked then state, was, ended = 'F', 'granted', true end
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
  pauses = ARGV[4] and not called and others == 'O'
end
if not pauses then
--@settle
elseif ended and ARGV[4] ~= '0' then
  notice = ARGV[4]
--@next
end
--@save
return 'GIVEN' .. said .. ' ' .. was
