-- Take the lock or queue for it: the bare hand-over, without one safety rule.
-- KEYS    1 the lock · 2 its queue
-- ARGV    1 'inbox attempt' · 2 lease_ms
-- RETURNS the token, held · 0 queued
if redis.call('get', KEYS[1]) then
  redis.call('rpush', KEYS[2], ARGV[1])
  return 0
end
local time = redis.call('time')
redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2])
return time[1] * 1000000 + time[2]
