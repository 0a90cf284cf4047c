#!lua flags=allow-oom
-- pool/spend: ends a notification whose receiver acts on it (P42). Every other end hands it to the next waiter.
--
-- KEYS     1 the record
-- ARGV     1 grant id (64)
--          2 token (16)
-- RETURNS  SPENT … | NOTHELD …
--          OTHER | FOREIGN type | NEWER version
-- EFFECTS  ends the grant, and lowers the limit by its units
-- RETRY    safe: a repeat of the last one gets SPENT again
-- COST     TIME, HMGET, HSET, HDEL; with a queue the cost of serving as in release
--@clock
--@pool
local pool = open(KEYS[1], ARGV[1])
if not pool.puts then return pool end
settle(pool, true)
local field, grant = find_grant(pool, ARGV[1])
local is_held = grant and sub(grant, GRANT.state) ~= 'C'
if pool.kind ~= 'V' or not is_held or sub(grant, GRANT.token) ~= ARGV[2] then
  local is_repeated = pool.kind == 'V' and (grant and not is_held or pool.released == ARGV[1])
  return (is_repeated and 'SPENT' or 'NOTHELD') .. save(pool)
end
take_out(pool, field, grant)
set_limit(pool, math.max(pool.limit - sub(grant, GRANT.units), 0))
pool.released = ARGV[1]
settle_for_waiters(pool)
return 'SPENT' .. save(pool)
