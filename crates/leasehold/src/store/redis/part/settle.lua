-- settle (P1), the step within every step: ends a lease whose time is over, and hands a free lease to the next live waiter.
-- Takes and changes the locals of `open`. `entry` becomes nil if the entry of `asked` was removed from the queue.
--
-- A time in the future shows that the clock was set back. It becomes the time of now.
if state ~= 'F' and since > now then
  since = now
--@last
  keep, ttl_changed = string.format('%016.0f', last_us + R_US), true
end
for at = 33, #lapses, 48 do
  if sub(lapses, at, at + 15) > now then lapses = sub(lapses, 1, at - 1) .. now .. sub(lapses, at + 16) end
end
if state ~= 'F' and since + length * 1000 <= now_us then
  if state == 'P' then
    -- A session that let a claim run out is frozen or dead. Each of its other waiters would cost a claim (P7).
    local session, kept = sub(id, 1, 32), ''
    for at = 1, #lapses, 48 do
      if sub(lapses, at, at + 31) ~= session then kept = kept .. sub(lapses, at, at + 47) end
    end
    if #kept == 48 * LAPSES then kept = sub(kept, 49) end
    lapses = kept .. session .. string.format('%016.0f', since + length * 1000)
  end
  -- A grant that cooled down was given back, and is the last one that was (P23).
  state, id = 'F', state == 'C' and id or sub(rear, 1, 64)
  -- It is unknown how much of the range was used, so all of it is burnt (P19).
  if sub(rear, 65, 72) ~= '00000001' then token = string.format('%016.0f', token + sub(rear, 65, 72) - 1) end
end
local looked_at = 0
while state == 'F' and counts > 0 do
  if looked_at == SETTLE_STEPS then
    rest = 'M'
    break
  end
  looked_at = looked_at + 1
  local who, e, n = head, 'e' .. head, 'n' .. head
  local got = redis.call('HMGET', name, e, n)
  local waiter, after = got[1], got[2]
  if puts then
    -- Fields that this step has changed, and not stored yet.
    if puts[e] then waiter = puts[e] end
    if puts[n] ~= nil then after = puts[n] end
    puts[e], puts[n] = false, false
  else
    puts = { [e] = false, [n] = false }
  end
  if who == asked then entry = nil end
  head = after or NOBODY
  if not after then tail = NOBODY end
  counts = counts - (sub(waiter, 58, 58) == 's' and 100001 or 100000)
--@alive
  if alive then
    local lease_ms, claim_ms, range = sub(waiter, 59, 66), sub(waiter, 49, 56), sub(waiter, 131, 138)
    if lease_ms < claim_ms then claim_ms = lease_ms end
--@mint
    state, rear, id, length, since = 'P', id .. range .. sub(waiter, 139), who, claim_ms, now
    local last_us = token + range - 1
    -- Not at every hand-over: on a busy lock, one in a thousand writes it.
    if keep + 0 < math.max(now_us + claim_ms * 1000, last_us) + R_US then
      keep, ttl_changed = string.format('%016.0f', math.max(now_us + lease_ms * 1000, last_us) + R_US), true
    end
    handed, told = claim_ms, told or {}
    local others = counts % 100000 > 0 and ' S D ' or counts > 0 and ' O D ' or ' N D '
    local at = #told
    told[at + 1] = channel
    told[at + 2] = 'lh1 G ' .. who .. ' ' .. token .. ' ' .. claim_ms .. '000 ' .. now .. others .. range .. ' ' .. name
  end
end
if counts == 0 then lapses = '' end
