#!lua flags=allow-oom
-- pool/state: returns the state of a latch. A count-down and a delete ask for it first: they name the latch that they saw
-- (P44). It is not a part of create, because a server whose memory is full refuses that.
--
-- KEYS     1 the record
-- ARGV     1 not_after in µs (16): after this time nothing is done (P4)
-- RETURNS  COUNTED … left born: the count-downs that are missing, and the token of its creation |
--          REFUSED … other|absent kind limit | LATE …
--          OTHER | FOREIGN type | NEWER version
-- EFFECTS  settles
-- RETRY    safe
-- COST     TIME, HMGET, HGET
--@clock
--@pool
local pool = open(KEYS[1], nil)
if not pool.puts then return pool end
settle(pool)
if now > ARGV[1] then return 'LATE' .. save(pool) end
if pool.record and pool.kind ~= 'L' then return 'REFUSED' .. save(pool) .. said_other(pool) end
if not latch_left(pool) then return 'REFUSED' .. save(pool) .. ' absent L 000000' end
return 'COUNTED' .. save(pool) .. counted(pool)
