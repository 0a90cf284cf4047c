#!lua flags=allow-oom
-- revoke: asks the holder to stop, and ends its lease after the grace (P10).
--
-- KEYS     1 the record
-- ARGV     1 token (16) and public part of the grant id (48), as the caller saw them: a later holder is not revoked
--          2 grace in ms
-- RETURNS  REVOKING … since length | NOTHELD …
--          FOREIGN type | NEWER version
-- EFFECTS  marks the grant and shortens its lease to the grace; notifies the holder; settles, so that with a grace of 0 the
--          next waiter holds before this returns; otherwise notifies the next waiters. `allow-oom`: an operator who clears
--          a full memory needs it.
-- RETRY    safe: a marked grant is marked again, and its lease never grows
-- COST     TIME, HMGET, HSET, PUBLISH; a hand-over as in release, or HMGET, PUBSUB NUMSUB and PUBLISH for two waiters, and
--          two calls for each dead waiter, up to 64
--@clock
local name, asked, found, got = KEYS[1], nil, nil, nil
--@open
--@settle
local revoked
if state ~= 'F' and token .. sub(id, ID.public) == ARGV[1] then
  -- Nobody works under a lease that cools down, so nobody needs a grace.
  local grace_ms = state == 'C' and 0 or ARGV[2]
  local last_us = math.min(since + length * 1000, now_us + grace_ms * 1000)
  state, length = 'R', string.format('%08.0f', math.floor((last_us - since) / 1000))
  local last_us = math.max(since + length * 1000, token + sub(rear, REAR.range) - 1, now_us)
  keep, ttl_changed = string.format('%016.0f', last_us + R_US), true
  local left_us = string.format('%.0f', math.max(since + length * 1000 - now_us, 0))
  revoked, told = since .. ' ' .. length, told or {}
  told[#told + 1] = inboxes .. sub(id, ID.session)
  told[#told + 1] = 'lh1 R ' .. id .. ' ' .. token .. ' ' .. left_us .. ' ' .. now .. ' N D '
    .. sub(rear, REAR.range) .. ' ' .. name
end
if revoked then
--@settle
--@next
end
--@save
if revoked then return 'REVOKING' .. said .. ' ' .. revoked end
return 'NOTHELD' .. said
