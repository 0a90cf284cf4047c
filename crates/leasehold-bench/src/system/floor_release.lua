-- Give the lock to the next waiter that receives the message: the bare hand-over, without one safety rule.
-- KEYS    1 the lock · 2 its queue
-- ARGV    1 'inbox attempt' of the holder · 2 lease_ms
-- RETURNS 0 not held · 1 nobody waits · 2 handed over
if redis.call('get', KEYS[1]) ~= ARGV[1] then
  return 0
end
while true do
  local waiter = redis.call('lpop', KEYS[2])
  if not waiter then
    redis.call('del', KEYS[1])
    return 1
  end
  local time = redis.call('time')
  local inbox = string.match(waiter, '^(%S+)')
  redis.call('set', KEYS[1], waiter, 'PX', ARGV[2])
  if redis.call('publish', inbox, waiter .. ' ' .. time[1] .. time[2]) > 0 then
    return 2
  end
end
