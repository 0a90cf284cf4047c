#!lua
-- Enters to write, and sets the guarded key. Without a value, removes it.
--
-- KEYS     as enter
-- ARGV     as enter   6 the value, if any
-- RETURNS  DONE | STALE mark | FOREIGN marks | FOREIGN data
-- EFFECTS  raises both marks; writes the key, which keeps its expiry
-- RETRY    safe: the write is known by client and number, and happens once, also if it comes after its successors
-- COST     as enter, TYPE, and SET or DEL
--@marks
local kind = redis.call('TYPE', guarded).ok
if kind ~= 'string' and kind ~= 'none' then return 'FOREIGN data' end
raise()
if repeated then return 'DONE' end
if ARGV[6] then
  redis.call('SET', guarded, ARGV[6], 'KEEPTTL')
else
  redis.call('DEL', guarded)
end
return 'DONE'
