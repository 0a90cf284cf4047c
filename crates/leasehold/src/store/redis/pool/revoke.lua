#!lua flags=allow-oom
-- pool/revoke: asks a holder to stop, and ends its lease after the grace (P10).
--
-- KEYS     1 the record
-- ARGV     1 public part of the grant id (48) and token (16), as the caller saw them
--          2 grace in ms
-- RETURNS  REVOKING … since length | NOTHELD …
--          OTHER | FOREIGN type | NEWER version
-- EFFECTS  marks the grant and shortens its lease to the grace; notifies the holder; settles, so that with a grace of 0 the
--          next waiters hold before this returns; otherwise notifies the next waiters. `allow-oom`: an operator who clears
--          a full memory needs it.
-- RETRY    safe: a marked grant is marked again, and its lease never grows
-- COST     TIME, HMGET, HGET, HSET, PUBLISH; the cost of serving as in release, and of notify_next in part/leave.lua
--@clock
--@pool
--@leave
local pool = open(KEYS[1], nil)
if not pool.puts then return pool end
settle(pool)
local public = sub(ARGV[1], SEEN.id)
local grant = read(pool, 'g' .. public)
if not grant or sub(grant, GRANT.token) ~= sub(ARGV[1], SEEN.token) then return 'NOTHELD' .. save(pool) end
-- Nobody works under a grant that cools down, so nobody needs a grace.
local grace_ms = sub(grant, GRANT.state) == 'C' and 0 or ARGV[2]
local since, end_us = sub(grant, GRANT.since), math.min(end_of(grant), now_us + grace_ms * 1000)
local length = format('%08.0f', math.floor((end_us - since) / 1000))
grant = sub(grant, GRANT.nonce) .. 'R' .. sub(grant, GRANT.mode.to.since) .. length .. sub(grant, GRANT.label)
change(pool, 'g' .. public, grant)
local who, left_us = public .. sub(grant, GRANT.nonce), format('%.0f', math.max(end_of(grant) - now_us, 0))
tell(pool, who, 'lh1 R ' .. who .. ' ' .. sub(grant, GRANT.token) .. ' ' .. left_us .. ' ' .. now .. ' N D 00000001 '
  .. pool.name)
settle(pool)
notify_next(pool)
return 'REVOKING' .. save(pool) .. ' ' .. since .. ' ' .. length
