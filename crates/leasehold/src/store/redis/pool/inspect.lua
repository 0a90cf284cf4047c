#!lua flags=no-writes
-- pool/inspect: reads, and changes nothing. A lease that has ended is not shown.
--
-- KEYS     1 the record
-- ARGV     none
-- RETURNS  INSPECTED … waiters [since length state token public-id label]
--          OTHER | FOREIGN type | NEWER version
-- EFFECTS  none. The secret part of a grant ID does not leave the store: a client that knows it can release.
-- RETRY    safe
-- COST     TIME, HMGET, HSCAN
--@clock
--@pool
local pool = open(KEYS[1], nil)
if not pool.puts then return pool end
local holder
local stored = redis.call('HSCAN', pool.name, '0', 'MATCH', 'g*', 'COUNT', SCANNED)[2]
for at = 1, #stored, 2 do
  local grant = stored[at + 1]
  local is_first = not holder or sub(grant, GRANT.token) < sub(stored[holder + 1], GRANT.token)
  if is_first and end_of(grant) > now_us then holder = at end
end
local said = 'INSPECTED ' .. now .. ' ' .. pool.last .. ' ' .. level(pool) .. ' D - '
--&
  .. format('%.0f', math.floor(pool.counts / 100000) + (pool.upgrade and 1 or 0))
if not holder then return said end
local grant = stored[holder + 1]
return said .. ' ' .. lease_of(grant) .. ' ' .. sub(grant, GRANT.state) .. ' ' .. sub(grant, GRANT.token) .. ' '
--&
  .. sub(stored[holder], FIELD.public) .. ' ' .. sub(grant, GRANT.label)
