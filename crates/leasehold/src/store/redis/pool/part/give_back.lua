-- give_back: defines `give_back`. Comes after `settle`.
-- Gives a grant back.
local function give_back(pool, id, field, grant)
  take_out(pool, field, grant)
  pool.released = id
  settle_for_waiters(pool)
  local is_long = sub(grant, GRANT.length) > '00060000' or pool.keep > sub(grant, GRANT.since) + 2 * R_US
  local is_free = pool.grants == 0 and pool.counts == 0 and not pool.upgrade
  if is_free and is_long and pool.kind ~= 'L' then pool.keep = now_us + R_US end
end
