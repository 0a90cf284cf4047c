-- arrive: defines the replies to an attempt that holds, and to an arrival at a barrier (P52).

-- Returns the reply to an attempt that holds.
local function granted(pool, own)
  local range = stated_range(pool, sub(own, GRANT.units))
  return 'GRANTED' .. save(pool) .. ' ' .. sub(own, GRANT.token) .. ' ' .. range .. ' ' .. lease_of(own)
end

-- A party whose round was broken does not begin to wait in the next one. If earlier parties wait, a failover has lost the
-- places of the later ones: the round is broken.
local function dismissed(pool, ticket)
  if pool.counts > 0 and sub(read_two(pool, pool.head), WAITER.ticket) < ticket then
    break_round(pool, (read_round(pool)))
  end
  return 'REFUSED' .. save(pool) .. ' absent B 000000'
end

-- The arrival may have completed its round. It has broken the round if its session is detached.
local function arrived(pool, asked, ticket)
  settle(pool)
  local _, own = find_grant(pool, asked)
  if own then return granted(pool, own) end
  if not pool.entry then return dismissed(pool, ticket) end
  return 'QUEUED' .. save(pool) .. ' ' .. ticket .. first_left(pool) .. ' now'
end
