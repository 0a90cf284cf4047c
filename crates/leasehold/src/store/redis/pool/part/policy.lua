-- policy: defines the meaning of each kind. The other parts ask only these functions for it.

local function set_limit(pool, limit)
  pool.limit, pool.begins = limit, sub(pool.begins, POOL.version.to.kind) .. format('%06.0f', limit)
end

-- Whether waiters wait for something else than the end of a lease.
local function has_no_holders(pool)
  return pool.kind == 'V' or pool.kind == 'L' or pool.kind == 'B'
end

-- Whether the units of a share can ever be free. The limit of a condition variable grows with each notification.
local function fits_at_all(pool, share)
  local units = sub(share, SHARE.units) + 0
  return has_no_holders(pool) or units > 0 and units <= pool.limit
end

-- Whether units of a share are free. Nobody is admitted while an upgrade waits.
local function fits(pool, share)
  if pool.kind == 'L' then return latch_left(pool) == 0 end
  if pool.kind == 'B' then return pool.limit == 1 end
  local is_alone = sub(share, SHARE.mode) ~= 'U' or pool.upgradeable ~= 'U'
  return is_alone and not pool.upgrade and pool.units + sub(share, SHARE.units) <= pool.limit
end

-- Returns what a statement about a grant says of its range: of a barrier, the place of the arrival (P52).
local function stated_range(pool, units)
  return pool.kind == 'B' and '00' .. units or '00000001'
end

-- Notes that nobody waits. Notifications that nobody has received are not kept for later waiters (P42).
local function note_idle(pool)
  if pool.kind == 'V' and pool.limit ~= pool.units then set_limit(pool, pool.units) end
end

-- Keeps the record of a kind that has waiters and no grant, for a waiter that asks again.
local function keep_for_standing_waiter(pool)
  if has_no_holders(pool) and pool.keep < now_us + R_US then pool.keep = now_us + 2 * R_US end
end

local function said_other(pool)
  return ' other ' .. pool.kind .. ' ' .. sub(pool.begins, POOL.limit)
end
