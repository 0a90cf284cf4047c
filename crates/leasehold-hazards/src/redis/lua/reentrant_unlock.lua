if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  return nil
end
if redis.call('HINCRBY', KEYS[1], ARGV[1], -1) == 0 then
  return redis.call('DEL', KEYS[1])
end
return 0
