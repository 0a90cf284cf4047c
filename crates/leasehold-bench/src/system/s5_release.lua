-- Compare and delete: the other half of the textbook lock (S5).
-- KEYS    1 the lock
-- ARGV    1 the value of the attempt that holds
-- RETURNS 1 released · 0 not held
if redis.call('get', KEYS[1]) == ARGV[1] then
  return redis.call('del', KEYS[1])
end
return 0
