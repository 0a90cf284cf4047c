#!lua flags=allow-oom
-- pool/count_down: counts a latch down, once for each ID, and only the latch that the caller saw (P44).
--
-- KEYS     1 the record
-- ARGV     1 ID of the count-down (64)
--          2 token of the creation of the latch (16)
-- RETURNS  COUNTED … left born: the count-downs that are missing, and the token of its creation |
--          REFUSED … absent kind limit
--          OTHER | FOREIGN type | NEWER version
-- EFFECTS  notes the ID, and keeps the record anew. The last count-down opens the latch: waiters are granted and notified
-- RETRY    safe: an ID counts once
-- COST     TIME, HMGET, HGET, HGET, HSET, PEXPIRE; if it opens the latch, the cost of serving as in release
--@clock
--@pool
local pool = open(KEYS[1], nil)
if not pool.puts then return pool end
settle(pool)
local left = latch_left(pool)
if not left or sub(read(pool, 'l'), LATCH.born) ~= ARGV[2] then
  return 'REFUSED' .. save(pool) .. ' absent L 000000'
end
if left > 0 and not read(pool, 'c' .. ARGV[1]) then
  local latch = read(pool, 'l')
  pool.puts['c' .. ARGV[1]] = ''
  pool.puts.l = sub(latch, LATCH.born.to.keep) .. format('%06.0f', sub(latch, LATCH.counted) + 1)
  keep_latch(pool)
end
settle(pool)
return 'COUNTED' .. save(pool) .. counted(pool)
