-- replace: defines how the grant that an upgrade names becomes that of a writer (P37).
--
-- Whether a grant may be replaced by that of an upgrade, which names it.
local function is_upgradeable(grant, of, token)
  return grant and sub(grant, GRANT.nonce) == sub(of, ID.nonce) and sub(grant, GRANT.token) == token
    and sub(grant, GRANT.mode) == 'U' and string.find(sub(grant, GRANT.state), '[HP]')
end

local function hand_to_upgrade(pool)
  local waiter = pool.upgrade
  if not waiter then return end
  pool.upgrade = nil
  local who, of, place = sub(waiter, UPGRADE.id), sub(waiter, UPGRADE.of), sub(waiter, UPGRADE.limit.to.lease)
  local field = 'g' .. sub(of, ID.public)
  local grant = read(pool, field)
  -- Without its grant it is over. If it is not alive, a re-check brings it back.
  if not is_upgradeable(grant, of, sub(waiter, UPGRADE.token)) or not is_alive(pool, who, place) then return end
  if pool.grants > 1 then
    pool.upgrade = waiter
    return
  end
  take_out(pool, field, grant)
  pool.released = of
  -- Its holder held until then, and would lose by less (P37).
  local left_ms = math.floor(math.max(end_of(grant) - now_us, 0) / 1000)
  local claim_ms = math.min(sub(waiter, UPGRADE.claim), sub(waiter, UPGRADE.lease))
  push(pool, who, place, 'P' .. sub(waiter, UPGRADE.units), format('%08.0f', math.max(claim_ms, left_ms)),
    sub(waiter, UPGRADE.label))
end
