#!lua flags=allow-oom
-- pool/leave: stops waiting. A grant that was already made is given back in the same step (P16).
--
-- KEYS     1 the record
-- ARGV     1 grant id (64)
-- RETURNS  LEFT … queued | LEFT … granted | LEFT … absent
--          OTHER | FOREIGN type | NEWER version
-- EFFECTS  removes the entry or the upgrade, or gives the grant back; settles. If a lease is marked or cools down, notifies
--          the waiters that are next now (P10, P23)
-- RETRY    safe: a repeat returns absent
-- COST     TIME, HMGET, HMGET, HSET, HDEL, and a read for each neighbour
--@clock
--@pool
--@leave
local pool = open(KEYS[1], ARGV[1])
if not pool.puts then return pool end
return leave(pool, ARGV[1])
