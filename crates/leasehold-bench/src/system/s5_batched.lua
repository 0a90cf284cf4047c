-- The textbook lock (S5) for many names: compare-and-delete for the releases, and then SET NX PX for the acquires.
-- KEYS    the locks to release, then the locks to acquire
-- ARGV    1 lease_ms · 2 the number of locks to release · 3… the value of the attempt for each key
-- RETURNS a digit for each key: 1 released or held · 0 not held or taken
local releases, replies, mine = tonumber(ARGV[2]), {}, {}
if releases > 0 then
  local found = redis.call('mget', unpack(KEYS, 1, releases))
  for i = 1, releases do
    replies[i] = '0'
    if found[i] == ARGV[2 + i] then
      replies[i] = '1'
      mine[#mine + 1] = KEYS[i]
    end
  end
  if #mine > 0 then
    redis.call('del', unpack(mine))
  end
end
for i = releases + 1, #KEYS do
  replies[i] = redis.call('set', KEYS[i], ARGV[2 + i], 'NX', 'PX', ARGV[1]) and '1' or '0'
end
return table.concat(replies)
