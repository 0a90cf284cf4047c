-- round: defines how the round of a barrier ends (P52). The queue is the round.

-- Tells a waiter that its entry is removed. It asks again, and is refused.
local function tell_dismissed(pool, who, token)
  tell(pool, who, 'lh1 E ' .. who .. ' ' .. token .. ' 0 ' .. now .. ' N D 00000001 ' .. pool.name)
end

-- Returns the parties that wait, and whether one of them is gone.
local function read_round(pool)
  local parties, who, is_broken = {}, pool.counts > 0 and pool.head, false
  while who and who ~= NOBODY do
    local waiter, after = read_two(pool, who)
    is_broken = is_broken or not is_alive(pool, who, waiter)
    parties[#parties + 1] = { who = who, waiter = waiter }
    who = after
  end
  return parties, is_broken
end

local function end_round(pool, parties)
  for _, party in ipairs(parties) do
    pool.puts['e' .. party.who], pool.puts['n' .. party.who] = false, false
  end
  pool.head, pool.tail, pool.tail_ticket, pool.counts, pool.entry = NOBODY, NOBODY, ZEROS, 0, nil
end

local function break_round(pool, parties)
  end_round(pool, parties)
  for _, party in ipairs(parties) do tell_dismissed(pool, party.who, pool.last) end
end

-- Breaks the round if a party of it is gone, or lets it through if it is complete. The units of a grant are the place of
-- the arrival, counted from the last one.
local function settle_round(pool)
  local parties, is_broken = read_round(pool)
  if is_broken then return break_round(pool, parties) end
  if #parties == 0 or #parties < pool.limit then return end
  end_round(pool, parties)
  for at, party in ipairs(parties) do
    local share, waiter = 'P' .. format('%06.0f', #parties + 1 - at), party.waiter
    push(pool, party.who, waiter, share, sub(waiter, WAITER.lease), sub(waiter, WAITER.label))
  end
  -- These are whole leases, and no claims.
  pool.handed = '-'
end
