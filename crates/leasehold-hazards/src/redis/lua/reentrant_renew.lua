if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then
  return redis.call('EXPIRE', KEYS[1], ARGV[2])
end
return 0
