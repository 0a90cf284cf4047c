#!lua flags=allow-oom
-- pool/lower: a grant takes fewer units from now on, and cannot be upgraded any more (P39).
--
-- KEYS     1 the record
-- ARGV     1 grant id (64)
--          2 token (16)
--          3 units (6)
-- RETURNS  LOWERED … | LOST … revoked | LOST … notheld
--          OTHER | FOREIGN type | NEWER version
-- EFFECTS  grants to the waiters that fit now
-- RETRY    safe: units never rise
-- COST     TIME, HMGET, HSET; with a queue the cost of serving as in release
--@clock
--@pool
local pool = open(KEYS[1], ARGV[1])
if not pool.puts then return pool end
settle(pool, true)
local field, grant = find_grant(pool, ARGV[1])
if not grant or sub(grant, GRANT.state) == 'C' or sub(grant, GRANT.token) ~= ARGV[2] then
  return 'LOST' .. save(pool) .. ' notheld'
end
if sub(grant, GRANT.state) == 'R' then return 'LOST' .. save(pool) .. ' revoked' end
local units = sub(grant, GRANT.units)
if ARGV[3] < units then units = ARGV[3] end
pool.units = pool.units - counted_units(pool, sub(grant, GRANT.units)) + counted_units(pool, units)
if sub(grant, GRANT.mode) == 'U' then pool.upgradeable = '-' end
pool.puts[field] = sub(grant, GRANT.nonce.to.state) .. 'P' .. units .. sub(grant, GRANT.token.from)
settle_for_waiters(pool)
return 'LOWERED' .. save(pool)
