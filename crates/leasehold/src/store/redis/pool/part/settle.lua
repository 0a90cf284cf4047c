-- settle: defines `settle`. Comes after `serve`, whose head describes it.
local function hand_over(pool)
  local looked_at = 0
  while pool.counts > 0 and not pool.upgrade do
    if looked_at == SETTLE_STEPS then
      pool.rest = 'M'
      return
    end
    looked_at = looked_at + 1
    local who = pool.head
    local waiter, after = read_two(pool, who)
    local share = sub(waiter, WAITER.share)
    -- First whether it is alive: a dead waiter that does not fit would stop those behind it (P33).
    local may_be = is_alive(pool, who, waiter) and fits_at_all(pool, share)
    if may_be and not fits(pool, share) then return end
    if who == pool.asked then pool.entry = nil end
    pool.head = after or NOBODY
    if not after then pool.tail = NOBODY end
    pool.counts = pool.counts - (sub(waiter, WAITER.order) == 's' and 100001 or 100000)
    pool.puts['e' .. who], pool.puts['n' .. who] = false, false
    if may_be then
      local claim, lease = sub(waiter, WAITER.claim), sub(waiter, WAITER.lease)
      push(pool, who, waiter, share, lease < claim and lease or claim, sub(waiter, WAITER.label))
    end
  end
end

-- A brief step changes nothing if leases are held and none has ended.
local function settle(pool, is_brief)
  local before = #pool.told
  pool.rest = 'D'
  if not sweep(pool, is_brief) and is_brief and pool.grants > 0 then return end
  local lapses = pool.lapses
  for at = LAPSE.time.from, #lapses, LAPSE.size do
    if sub(lapses, LAPSE.time(at)) > now then
--&
      lapses = sub(lapses, 1, at - 1) .. now .. sub(lapses, LAPSE.time(at).behind) end
  end
  pool.lapses = lapses
  if pool.kind == 'B' then
    settle_round(pool)
  else
    hand_to_upgrade(pool)
    hand_over(pool)
  end
  if pool.counts == 0 and not pool.upgrade then
    pool.lapses = ''
    note_idle(pool)
  end
  -- The reply can be lost with its client. The last of those that were granted goes on (P34).
  local at = #pool.told
  if pool.rest == 'M' and at > before then pool.told[at] = string.gsub(pool.told[at], ' D ', ' M ', 1) end
end

-- Settles if somebody waits. Leases that have ended keep nobody out until somebody asks.
local function settle_for_waiters(pool)
  if pool.counts > 0 or pool.upgrade then settle(pool) else note_idle(pool) end
end
