-- leave: defines `leave` and `notify_next`.

-- Notifies the next waiters of a new end: one waiter of a session, and REVOKE_NOTIFIED in all. A lease that is marked (P10)
-- or cools down (P23) ends at another time than its waiters know, and the server does nothing by itself at that time.
local function notify_next(pool)
  if pool.marked ~= 'M' or pool.counts == 0 or pool.kind == 'B' then return end
  local ending, ends
  local function visit(field, grant)
    if not string.find(sub(grant, GRANT.state), '[RC]') then return end
    -- Of two with the same end, the one with the smaller ID.
    local key = format('%016.0f', end_of(grant)) .. field
    if not ending or key < ends then ending, ends = grant, key end
  end
  local stored = redis.call('HSCAN', pool.name, '0', 'MATCH', 'g*', 'COUNT', SCANNED)[2]
  for at = 1, #stored, 2 do
    if pool.puts[stored[at]] == nil then visit(stored[at], stored[at + 1]) end
  end
  for field, grant in pairs(pool.puts) do
    if grant and sub(field, FIELD.kind) == 'g' then visit(field, grant) end
  end
  if not ending then return end
  local who, looked_at, notified, before = pool.head, 0, 0, nil
  local rest = ' ' .. sub(ending, GRANT.token) .. ' ' .. format('%.0f', end_of(ending) - now_us) .. ' ' .. now
--&
    .. ' ' .. level(pool) .. ' D 00000001 ' .. pool.name
  while who and who ~= NOBODY and looked_at < SETTLE_STEPS and notified < REVOKE_NOTIFIED do
    local waiter, after = read_two(pool, who)
    local alive, listens = is_alive(pool, who, waiter)
    local session = sub(who, ID.session)
    if alive and listens and session ~= before then
      tell(pool, who, 'lh1 E ' .. who .. rest)
      notified, before = notified + 1, session
    end
    who, looked_at = after, looked_at + 1
  end
end

local function leave(pool, who)
  if pool.entry then
    unlink(pool, who)
    -- The others of the round would wait in vain (P52).
    if pool.kind == 'B' then break_round(pool, (read_round(pool))) end
    settle(pool)
    notify_next(pool)
    return 'LEFT' .. save(pool) .. ' queued'
  end
  if pool.upgrade and sub(pool.upgrade, UPGRADE.id) == who then
    pool.upgrade = nil
    settle(pool)
    return 'LEFT' .. save(pool) .. ' queued'
  end
  local field, grant = find_grant(pool, who)
  if grant and sub(grant, GRANT.state) ~= 'C' then
    give_back(pool, who, field, grant)
    return 'LEFT' .. save(pool) .. ' granted'
  end
  settle(pool)
  return 'LEFT' .. save(pool) .. ' absent'
end
