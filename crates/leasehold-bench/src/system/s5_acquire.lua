-- SET NX PX: the textbook lock (S5), in a script so that both systems pay for one.
-- KEYS    1 the lock
-- ARGV    1 this attempt's value · 2 lease_ms
-- RETURNS 1 held · 0 taken
if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  return 1
end
return 0
