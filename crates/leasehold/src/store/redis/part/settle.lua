-- settle (P1), the step within every step: ends what has ended, and hands a free lease to the next live waiter. Takes and
-- changes the locals of `open`; `entry` becomes nil if the one asked for was taken out of the queue.
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
if state == 'F' and count > 0 then
  local looked_at, at = 0, 1
  repeat
    local who, waiter
    if queue then
      who, waiter = sub(queue, at, at + 63), sub(queue, at + 64, at + 132 + sub(queue, at + 130, at + 132))
      at = at + 64 + #waiter
    else
      local e, n = 'e' .. head, 'n' .. head
      local got = redis.call('HMGET', name, e, n)
      local after = got[2]
      -- What is not stored yet.
      if puts and puts[n] ~= nil then after = puts[n] end
      who, waiter, puts = head, puts and puts[e] or got[1], puts or {}
      puts[e], puts[n], head = false, false, after or NOBODY
      if not after then tail = NOBODY end
    end
    looked_at, count = looked_at + 1, count - 1
    if sub(waiter, 66, 66) == 's' then strict = strict - 1 end
    if who == asked then entry = nil end
    -- Attachment is asked for, never found out by publishing: a pattern subscriber makes PUBLISH count 1 for a dead
    -- inbox, and in a cluster 0 can mean delivered: skipping then makes two holders (P6).
    local session, limit = sub(who, 1, 32), sub(waiter, 33, 48)
    local channel = sub(name, 1, string.find(name, '{', 1, true) - 1) .. 'inbox:' .. session
    local alive = limit == ZEROS or limit > now
    for lapse = 1, #lapses, 48 do
      local ran_out = sub(lapses, lapse + 32, lapse + 47)
      if sub(lapses, lapse, lapse + 31) == session and sub(waiter, 49, 64) < ran_out then alive = false end
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
      state, prev, id, length, since, label = 'P', id, who, claim, now, sub(waiter, 70, 69 + sub(waiter, 67, 69))
      -- Not at every hand-over: on a busy lock this is a write in a thousand.
      if keep + 0 < now_us + claim * 1000 + R_US then
        keep, ttl_changed = string.format('%016.0f', now_us + lease * 1000 + R_US), true
      end
      handed, told = claim, told or {}
      local others = strict > 0 and 'S' or count > 0 and 'O' or 'N'
      told[#told + 1] = channel
      told[#told + 1] = 'lh1 G ' .. who .. ' ' .. token .. ' ' .. claim .. '000 ' .. now .. ' ' .. others .. ' D ' .. name
    end
  until state ~= 'F' or count == 0 or looked_at == SETTLE_STEPS
  if queue then queue = sub(queue, at) end
  if state == 'F' and count > 0 then rest = 'M' end
end
if count == 0 then lapses = '' end
