-- settle (P1), the step within every step: ends what has ended, and hands a free lease to the next live waiter. Takes and
-- changes the locals of `open`. `puts` may say of an entry or a link what is not stored yet.
if state ~= 'F' and since + length * 1000 <= now_us then
  if state == 'P' then
    -- Whoever let a claim run out is frozen or dead: its other waiters would each cost a claim (P7).
    local session, kept = sub(id, 1, 32), ''
    for at = 1, #lapses, 48 do
      if sub(lapses, at, at + 31) ~= session then kept = kept .. sub(lapses, at, at + 47) end
    end
    if #kept == 48 * LAPSES then kept = sub(kept, 49) end
    lapses = kept .. session .. string.format('%016.0f', since + length * 1000)
  end
  state, id = 'F', prev
end
local looked_at = 0
while state == 'F' and count > 0 do
  if looked_at == SETTLE_STEPS then
    rest = 'M'
    break
  end
  looked_at = looked_at + 1
  local who, e, n = head, 'e' .. head, 'n' .. head
  local found = redis.call('HMGET', name, e, n)
  local waiter, after = puts and puts[e] or found[1], found[2]
  if puts and puts[n] ~= nil then after = puts[n] end
  puts = puts or {}
  puts[e], puts[n] = false, false
  head, count = after or NOBODY, count - 1
  if not after then tail, tail_ticket = NOBODY, ZEROS end
  if sub(waiter, 66, 66) == 's' then strict = strict - 1 end
  -- Attachment is asked for, never found out by publishing: a pattern subscriber makes PUBLISH count 1 for a dead inbox,
  -- and in a cluster 0 can mean delivered: skipping then makes two holders (P6).
  local session, limit = sub(who, 1, 32), sub(waiter, 33, 48)
  local channel = sub(name, 1, string.find(name, '{', 1, true) - 1) .. 'inbox:' .. session
  local alive = limit == ZEROS or limit > now
  for at = 1, #lapses, 48 do
    if sub(lapses, at, at + 31) == session and sub(waiter, 49, 64) < sub(lapses, at + 32, at + 47) then alive = false end
  end
  if alive and sub(waiter, 65, 65) == 'L' then
    alive = redis.call('PUBSUB', 'NUMSUB', channel)[2] > 0
  elseif alive then
    local floor_ms = math.min(math.floor(sub(waiter, 17, 24) / 3), 5000)
    alive = sub(waiter, 49, 64) + 3 * floor_ms * 1000 > now_us
  end
  if alive then
    local lease, claim = sub(waiter, 17, 24), sub(waiter, 25, 32)
    if lease < claim then claim = lease end
    -- The token follows the clock, and never falls when that steps back.
    if now > token then
      token = now
    else
      token, ttl_changed = string.format('%016.0f', token + 1), true
    end
    state, prev, id, length, since, label = 'P', id, who, claim, now, sub(waiter, 131)
    -- Not at every hand-over: on a busy lock this is a write in a thousand.
    if keep + 0 < now_us + claim * 1000 + R_US then
      keep, ttl_changed = string.format('%016.0f', now_us + lease * 1000 + R_US), true
    end
    handed, told = claim, told or {}
    local others = strict > 0 and 'S' or count > 0 and 'O' or 'N'
    told[#told + 1] = channel
    told[#told + 1] = 'lh1 G ' .. who .. ' ' .. token .. ' ' .. claim .. '000 ' .. now .. ' ' .. others .. ' D ' .. name
  end
end
if count == 0 then lapses = '' end
