#!lua flags=allow-oom
-- pool/cool_down: gives units back, and grants them to nobody for a while (P23). For an attempt that does not hold, it is a
-- leave.
--
-- KEYS     1 the record
-- ARGV     1 grant id (64)
--          2 time in ms (8) during which nobody is granted the units
-- RETURNS  LEFT … queued | LEFT … granted | LEFT … absent
--          OTHER | FOREIGN type | NEWER version
-- EFFECTS  the grant cools down from now on, or the entry is removed. A lease that was revoked, or has ended, is given back
--          at once. Settles, and notifies the next waiters of the new end. The key stays for R after that.
-- RETRY    safe: a cool-down that has begun is not lengthened
-- COST     TIME, HMGET, HSET; with a queue also the cost of notify_next in part/leave.lua
--@clock
--@pool
--@leave
local pool = open(KEYS[1], ARGV[1])
if not pool.puts then return pool end
local field, grant = find_grant(pool, ARGV[1])
local state = grant and sub(grant, GRANT.state)
if not grant or state == 'R' or state ~= 'C' and end_of(grant) <= now_us then return leave(pool, ARGV[1]) end
if state ~= 'C' then
  grant = sub(grant, GRANT.nonce) .. 'C' .. sub(grant, GRANT.mode.to.token) .. now .. ARGV[2] .. sub(grant, GRANT.label)
  change(pool, field, grant)
end
settle(pool)
notify_next(pool)
return 'LEFT' .. save(pool) .. ' granted'
