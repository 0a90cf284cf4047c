-- serve: defines `settle` (P1), the step within every step: ends leases whose time is over, and grants to the waiters that
-- fit, in their order (P33), an upgrade first (P37).

local function level(pool)
  return pool.counts % 100000 > 0 and 'S' or (pool.counts > 0 or pool.upgrade) and 'O' or 'N'
end

-- Whether a waiter may be granted, and whether it listens. `who` is its ID, and `waiter` begins like an entry.
--
-- PUBSUB NUMSUB shows whether an inbox is attached. The result of PUBLISH does not: see the `alive` of a mutex.
local function is_alive(pool, who, waiter)
  local session, limit, seen = sub(who, ID.session), sub(waiter, WAITER.limit), sub(waiter, WAITER.seen)
  local listens = sub(waiter, WAITER.hears) == 'L'
  if limit ~= ZEROS and limit <= now then return false, listens end
  -- An entry that was seen in the future was seen before the clock was set back. It counts as never seen.
  if seen > now then seen = ZEROS end
  for at = 1, #pool.lapses, LAPSE.size do
    if sub(pool.lapses, LAPSE(at).session) == session and seen < sub(pool.lapses, LAPSE(at).time) then
      return false, listens
    end
  end
  if not listens then
    local floor_ms = math.min(math.floor(sub(waiter, WAITER.lease) / 3), 5000)
    return seen + 3 * floor_ms * 1000 > now_us, listens
  end
  local is_attached = pool.attached[session]
  if is_attached == nil then
    is_attached = redis.call('PUBSUB', 'NUMSUB', pool.inboxes .. session)[2] > 0
    pool.attached[session] = is_attached
  end
  return is_attached, listens
end

local function tell(pool, who, text)
  local at = #pool.told
  pool.told[at + 1], pool.told[at + 2] = pool.inboxes .. sub(who, ID.session), text
end

-- Makes the grant of a waiter, and notifies it: it has to claim the lease (P7).
local function push(pool, who, waiter, share, length, label)
  local lease_ms = sub(waiter, WAITER.lease)
  local token = add(pool, who, 'P', share, length, label)
  if pool.keep < math.max(now_us + length * 1000, token + 0) + R_US then
    pool.keep = math.max(now_us + lease_ms * 1000, token + 0) + R_US
  end
  if pool.handed == '-' or pool.handed < length then pool.handed = length end
  tell(pool, who, 'lh1 G ' .. who .. ' ' .. token .. ' ' .. length .. '000 ' .. now .. ' ' .. level(pool)
    .. ' D ' .. stated_range(pool, sub(share, SHARE.units)) .. ' ' .. pool.name)
end
