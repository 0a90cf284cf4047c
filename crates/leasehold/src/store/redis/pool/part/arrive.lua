-- arrive: defines the replies to an attempt that holds, and to an arrival at a barrier (P52).

-- Returns the reply to an attempt that holds.
local function granted(pool, own)
  local range = stated_range(pool, sub(own, GRANT.units))
  return 'GRANTED' .. save(pool) .. ' ' .. sub(own, GRANT.token) .. ' ' .. range .. ' ' .. lease_of(own)
end

-- A party whose round was broken does not begin to wait in the next one.
local function dismissed(pool)
  return 'REFUSED' .. save(pool) .. ' absent B 000000'
end

-- The arrival may have completed its round. It has broken the round if its session is detached.
local function arrived(pool, asked, ticket)
  settle(pool)
  local _, own = find_grant(pool, asked)
  if own then return granted(pool, own) end
  if not pool.entry then return dismissed(pool) end
  return 'QUEUED' .. save(pool) .. ' ' .. ticket .. first_left(pool) .. ' now'
end
