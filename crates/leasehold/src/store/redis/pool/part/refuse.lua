-- refuse: defines `refusal`: why a request is refused. It contradicts the record (P31), can never fit (P40), or asks for a
-- latch that there is not (P44). A name without a record becomes what the request says.
local function refusal(pool, begins, share)
  local kind, limit = sub(begins, POOL.kind), sub(begins, POOL.limit)
  -- A waiter creates no latch: it would wait for count-downs that came before.
  local is_absent = not pool.record or pool.kind == 'L' and pool.limit == 0
  if kind == 'L' and is_absent then return ' absent L 000000' end
  if not pool.record then pool.begins, pool.kind, pool.limit = begins, kind, limit + 0 end
  -- Requests for a condition variable and for a latch name no limit.
  if pool.kind ~= kind or limit + 0 ~= 0 and limit + 0 ~= pool.limit then return said_other(pool) end
  if not fits_at_all(pool, share) then return ' many ' .. kind .. ' ' .. sub(pool.begins, POOL.limit) end
end
