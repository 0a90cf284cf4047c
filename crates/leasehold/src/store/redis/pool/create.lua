#!lua
-- pool/create: creates a latch. If there is one with this number, returns its state (P44).
--
-- KEYS     1 the record
-- ARGV     1 the number of count-downs that open it (6)
--          2 for how long it is kept after its creation and after each count-down, in ms (8)
--          3 not_after in µs (16): after this time nothing is done (P4)
-- RETURNS  COUNTED … left born: the count-downs that are missing, and the token of its creation |
--          REFUSED … other|many kind limit | LATE …
--          OTHER | FOREIGN type | NEWER version
-- EFFECTS  makes the record; settles
-- RETRY    safe: a repeat finds the latch
-- COST     TIME, HMGET, EXISTS, HSET, PEXPIRE
--@clock
--@pool
local COUNTS_MAX = 100000
local pool = open(KEYS[1], nil)
if not pool.puts then return pool end
settle(pool)
if now > ARGV[3] then return 'LATE' .. save(pool) end
local limit = ARGV[1] + 0
if not latch_left(pool) and (not pool.record or pool.kind == 'L') then
  if limit > COUNTS_MAX then return 'REFUSED' .. save(pool) .. ' many L ' .. format('%06.0f', COUNTS_MAX) end
  -- A larger token than that of an earlier latch of the name: it tells the two apart.
  pool.last = now > pool.last and now or format('%016.0f', pool.last + 1)
  pool.begins, pool.kind, pool.limit = 'lh1L' .. ARGV[1], 'L', limit
  pool.puts.l = pool.last .. ARGV[2] .. '000000'
  keep_latch(pool)
elseif pool.kind ~= 'L' or limit ~= pool.limit then
  return 'REFUSED' .. save(pool) .. said_other(pool)
end
return 'COUNTED' .. save(pool) .. counted(pool)
