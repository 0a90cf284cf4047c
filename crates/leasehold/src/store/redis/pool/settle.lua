#!lua flags=allow-oom
-- pool/settle: only settles. Sent after a claim has ended, after MORE, and by a re-check while the memory is full.
--
-- KEYS     1 the record
-- ARGV     none
-- RETURNS  SETTLED …
--          OTHER | FOREIGN type | NEWER version
-- EFFECTS  ends leases whose time is over; grants to the waiters that fit, and notifies them; drops dead waiters, up to 64
-- RETRY    safe
-- COST     TIME, HMGET; the cost of serving as in release
--@clock
--@pool
local pool = open(KEYS[1], nil)
if not pool.puts then return pool end
settle(pool)
return 'SETTLED' .. save(pool)
