#!lua flags=allow-oom
-- pool/notify: notifies the first waiters of a condition variable.
--
-- KEYS     1 the record
-- ARGV     1 the number of waiters
-- RETURNS  NOTIFIED … count: so many are notified, or will be by the next settle | REFUSED … other kind limit
--          OTHER | FOREIGN type | NEWER version
-- EFFECTS  the limit grows by so many notifications, and they are granted to the first waiters that live. Without a waiter
--          nothing changes
-- RETRY    safe: a repeat notifies others for nothing, which is allowed (P43)
-- COST     TIME, HMGET; with a queue the cost of serving as in release
--@clock
--@pool
local GRANTS_MAX = 100000
local pool = open(KEYS[1], nil)
if not pool.puts then return pool end
settle(pool)
if not pool.record then return 'NOTIFIED' .. save(pool) .. ' 0' end
if pool.kind ~= 'V' then return 'REFUSED' .. save(pool) .. said_other(pool) end
-- After MORE there are notifications for the first waiters already.
local ahead = math.max(pool.limit - pool.units, 0)
local waiting = math.max(math.floor(pool.counts / 100000) - ahead, 0)
local count = math.min(ARGV[1] + 0, waiting, GRANTS_MAX - pool.limit)
if count > 0 then
  set_limit(pool, pool.limit + count)
  settle(pool)
end
return 'NOTIFIED' .. save(pool) .. ' ' .. format('%.0f', count)
