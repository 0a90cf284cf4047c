#!lua flags=no-writes
-- pool/inspect: reads, and changes nothing. A lease that has ended is not shown.
--
-- KEYS     1 the record
-- ARGV     none
-- RETURNS  INSPECTED … kind limit units holders waiters {h since length state token public-id units mode label}
--          {w limit public-id units mode label}: docs/PROTOCOL.md has the sentence
--          OTHER | FOREIGN type | NEWER version
-- EFFECTS  none. The secret part of a grant ID does not leave the store: a client that knows it can release.
-- RETRY    safe
-- COST     TIME, HMGET, HSCAN; with a queue HMGET for each of the first 16 waiters. Of more than SCANNED grants it shows
--          any 16, and counts those that have ended
--@clock
--@pool
local SHOWN = 16
local function labelled(label) return format('%03d', #label) .. label end
local pool = open(KEYS[1], nil)
if not pool.puts then return pool end
local found = redis.call('HSCAN', pool.name, '0', 'MATCH', 'g*', 'COUNT', SCANNED)
local stored, held, units = found[2], {}, 0
for at = 1, #stored, 2 do
  local grant = stored[at + 1]
  if end_of(grant) > now_us then
    units = units + counted_units(pool, sub(grant, GRANT.units))
    held[#held + 1] = sub(grant, GRANT.token) .. ' ' .. sub(stored[at], FIELD.public) .. ' '
--&
      .. format('%.0f', sub(grant, GRANT.units)) .. ' ' .. sub(grant, GRANT.mode) .. ' '
--&
      .. labelled(sub(grant, GRANT.label))
    held[held[#held]] = lease_of(grant) .. ' ' .. sub(grant, GRANT.state)
  end
end
table.sort(held)
local grants = #held
if found[1] ~= '0' then units, grants = pool.units, pool.grants end
local begins = pool.begins or 'lh1M000001'
local said = {}
said[1] = 'INSPECTED ' .. now .. ' ' .. pool.last .. ' ' .. level(pool) .. ' D - ' .. sub(begins, POOL.kind) .. ' '
--&
  .. format('%.0f %.0f %.0f %.0f', sub(begins, POOL.limit), units, grants, math.floor(pool.counts / 100000)
--&
    + (pool.upgrade and 1 or 0))
for at = 1, math.min(#held, SHOWN) do said[#said + 1] = 'h ' .. held[held[at]] .. ' ' .. held[at] end
local shown = 0
if pool.upgrade then
  shown = 1
  said[#said + 1] = 'w ' .. sub(pool.upgrade, UPGRADE.limit) .. ' ' .. sub(pool.upgrade, UPGRADE.id.public) .. ' '
--&
    .. format('%.0f', sub(pool.upgrade, UPGRADE.units)) .. ' I ' .. labelled(sub(pool.upgrade, UPGRADE.label))
end
local who = pool.counts > 0 and pool.head
while who and who ~= NOBODY and shown < SHOWN do
  local waiter, after = read_two(pool, who)
  local share = sub(waiter, WAITER.share)
  said[#said + 1] = 'w ' .. sub(waiter, WAITER.limit) .. ' ' .. sub(who, ID.public) .. ' '
--&
    .. format('%.0f', sub(share, SHARE.units)) .. ' ' .. sub(share, SHARE.mode) .. ' '
--&
    .. labelled(sub(waiter, WAITER.label))
  who, shown = after, shown + 1
end
return table.concat(said, ' ')
