-- free: the short path of a release when nobody waits. It needs no clock. Returns the reply, or sets `got`, which the long
-- path takes apart. That would do and return the same. Not for condition variables: see `note_idle`.
local sub, field = string.sub, 'g' .. string.sub(ARGV[1], ID.public)
local got = redis.pcall('HMGET', KEYS[1], 'r', 'q', 'u', field)
local record, grant = got[1], got[4]
if record and grant and not got[2] and #record == POOL.size and sub(record, POOL.kind) ~= 'V'
  and sub(grant, GRANT.nonce) == sub(ARGV[1], ID.nonce)
  and sub(grant, GRANT.token) == ARGV[2] and sub(grant, GRANT.state) ~= 'C' then
  local units = sub(record, POOL.kind) == 'B' and 1 or sub(grant, GRANT.units)
  local taken = string.format('%012.0f', sub(record, POOL.taken) - units * 1000000 - 1)
  local flags = sub(record, POOL.flags)
  if sub(grant, GRANT.mode) == 'U' then flags = '-' .. sub(flags, FLAGS.marked) end
  -- If the last grant of a record that is kept for long ends, the record gets another time to live.
  if taken ~= '000000000000' or sub(record, POOL.keep) - sub(grant, GRANT.since) <= 120000000
    and sub(grant, GRANT.length) <= '00060000' then
    redis.call('HSET', KEYS[1], 'r', sub(record, POOL.version.to.limit) .. taken .. sub(record, POOL.last.to.keep)
      .. flags .. ARGV[1] .. sub(record, POOL.least))
    redis.call('HDEL', KEYS[1], field)
    return 'B' .. sub(record, POOL.last)
  end
end
