-- save: defines `save`, which writes the pool, and then publishes by pcall. An error before that leaves the record
-- unchanged, and a message that cannot be published counts as lost (P5, P8). Returns what follows the first word of every
-- reply: server time, highest token, other waiters (N nobody, O others, S a strict one), D done or M more to settle, the
-- claim of a grant that was made here.
local function save(pool)
  local sets, drops = { 'HSET', pool.name }, { 'HDEL', pool.name }
  local function put(field, value, stored)
    if value == stored then return end
    local list = value and sets or drops
    list[#list + 1] = field
    if value then list[#list + 1] = value end
  end
  -- A name that was never granted leaves nothing behind.
  if pool.record or pool.last ~= ZEROS then
    put('r', pool.begins .. format('%012.0f', pool.units * 1000000 + pool.grants) .. pool.last .. pool.soonest
      .. pool.newest .. format('%016.0f', pool.keep) .. pool.upgradeable .. pool.marked .. pool.released
      .. pool.least .. pool.cursor,
      pool.record)
  end
  local is_idle = pool.counts == 0 and not pool.upgrade
  put('q', not is_idle and pool.head .. format('%010.0f', pool.counts) .. pool.tail_ticket .. pool.tail .. pool.lapses,
    pool.queue)
  put('u', pool.upgrade or false, pool.waiting)
  for field, value in pairs(pool.puts) do put(field, value, pool.fields[field]) end
  if sets[3] then redis.call(unpack(sets)) end
  if drops[3] then redis.call(unpack(drops)) end
  local ends = math.max(pool.keep, pool.last + R_US)
  if sets[3] and ends ~= pool.ends then
    -- At least 1: a time to live of 0 deletes the key.
    redis.call('PEXPIRE', pool.name, format('%.0f', math.max(math.ceil((ends - now_us) / 1000), 1)))
  end
  for at = 1, #pool.told, 2 do
    redis.pcall('PUBLISH', pool.told[at], pool.told[at + 1])
  end
  return ' ' .. now .. ' ' .. pool.last .. ' ' .. level(pool) .. ' ' .. pool.rest .. ' ' .. pool.handed
end

-- Returns how long a waiter waits at least, as a lease: its begin and its length.
local function first_left(pool)
  if pool.grants == 0 then return ' 0 0' end
  return ' ' .. now .. ' ' .. format('%08.0f', math.max(math.ceil((pool.soonest - now) / 1000), 0))
end
