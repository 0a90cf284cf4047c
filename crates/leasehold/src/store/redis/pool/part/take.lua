-- take: the short path of an acquire when the units are free, nobody waits and no lease has ended. Returns the reply. The
-- long path would do and return the same.
local sub, field = string.sub, 'g' .. string.sub(ARGV[1], ID.public)
local got = redis.pcall('HMGET', KEYS[1], 'r', 'q', field)
local record = got[1]
if not record and not got.err and sub(ARGV[3], POOL.kind) ~= 'M' and redis.call('EXISTS', KEYS[1]) == 0 then
  -- A new name: its record is written, and none is read.
  local units, end_us = sub(share, SHARE.units) + 0, now + ARGV[2] * 1000
  if units > 0 and units <= sub(ARGV[3], POOL.limit) + 0 then
    local keep = end_us + ARGV[2] * 1000 + 60000000
    local flags = sub(share, SHARE.mode) == 'U' and 'U-' or '--'
    redis.call('HSET', KEYS[1], 'r',
      string.format('%s%06.0f000001%s%016.0f%s%016.0f', ARGV[3], units, now, end_us, now, keep) .. flags
      .. '----------------------------------------------------------------' .. '9000000000000000',
      field, sub(ARGV[1], ID.nonce) .. 'H' .. share .. now .. now .. ARGV[2] .. ARGV[5])
    redis.call('PEXPIRE', KEYS[1], string.format('%.0f', ARGV[2] * 2 + 60000))
    return now
  end
end
if record and not got[2] and not got[3] and #record == POOL.size and sub(record, POOL.version.to.limit) == ARGV[3]
  and now < sub(record, POOL.soonest) and now > sub(record, POOL.last) and now >= sub(record, POOL.newest)
  and sub(record, POOL.released) ~= ARGV[1] then
  local units, flags = sub(share, SHARE.units) + 0, sub(record, POOL.flags)
  local is_alone = sub(share, SHARE.mode) == 'U'
  if units > 0 and sub(record, POOL.units) + units <= sub(record, POOL.limit) + 0
    and not (is_alone and sub(record, POOL.flags.upgradeable) == 'U') then
    local lease_us, soonest, keep = ARGV[2] * 1000, sub(record, POOL.soonest), sub(record, POOL.keep)
    local kept_us = now + lease_us + 60000000
    if soonest - now > lease_us then soonest = string.format('%016.0f', now + lease_us) end
    local is_kept = kept_us <= keep + 0
    if not is_kept then keep = string.format('%016.0f', kept_us + lease_us) end
    if is_alone then flags = 'U' .. sub(record, POOL.flags.marked) end
    redis.call('HSET', KEYS[1], 'r', ARGV[3]
      .. string.format('%012.0f', sub(record, POOL.taken) + units * 1000000 + 1)
      .. now .. soonest .. now .. keep .. flags .. sub(record, POOL.released.from),
      field, sub(ARGV[1], ID.nonce) .. 'H' .. share .. now .. now .. ARGV[2] .. ARGV[5])
    if not is_kept then redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.ceil((keep - now) / 1000))) end
    return now
  end
end
