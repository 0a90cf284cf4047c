#!lua flags=allow-oom
-- leave: stops waiting. A grant that was already made is handed on in the same step (P16).
--
-- KEYS     1 the record
-- ARGV     1 grant id (64)
--          2 the highest token that was used under any grant of this ID (16); absent: none
-- RETURNS  LEFT … queued | LEFT … granted | LEFT … absent
--          FOREIGN type | NEWER version
-- EFFECTS  removes the entry, or gives the grant back and notifies the next holder; settles. If the lease is marked or
--          cools down, notifies the waiters that are next now (P10, P23)
-- RETRY    safe: a repeat returns absent
-- COST     TIME, HMGET, HGET, HSET, HDEL, and a read for the neighbour; without a queue also GET and SET
--@clock
local name, asked, found, got = KEYS[1], ARGV[1], nil, nil
--@open
local ended, used, was = nil, ARGV[2], 'absent'
if entry then
  was = 'queued'
--@unlink
elseif state ~= 'F' and state ~= 'C' and id == asked then
  was = 'granted'
--@spend
end
--@settle
if was == 'queued' then
--@next
end
if ended and state == 'F' and counts == 0 and ended + 0 > R_MS then
  keep, ttl_changed = string.format('%016.0f', now_us + R_US), true
end
--@save
return 'LEFT' .. said .. ' ' .. was
