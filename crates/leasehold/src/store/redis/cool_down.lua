#!lua flags=allow-oom
-- cool_down: gives the lease back, and grants it to nobody for a while (P23). For an attempt that does not hold, it is a
-- leave.
--
-- KEYS     1 the record
-- ARGV     1 grant id (64)
--          2 time in ms (8) during which nobody is granted the lease
--          3 the highest token that was used under any grant of this ID (16); absent: none
-- RETURNS  LEFT … queued | LEFT … granted | LEFT … absent
--          FOREIGN type | NEWER version
-- EFFECTS  the lease cools down from now on, or the entry is removed. A lease that was revoked, or has ended, is given back
--          at once. Settles, and notifies the next waiters of the new end. The key stays for R after that.
-- RETRY    safe: a cool-down that has begun is not lengthened
-- COST     TIME, HMGET, GET, SET; with a queue HSET, PEXPIRE, and the cost of part/next.lua
--@clock
local name, asked, found, got = KEYS[1], ARGV[1], nil, nil
--@open
local ended, used, was = nil, ARGV[3], 'absent'
if entry then
  was = 'queued'
--@unlink
elseif id == asked and (state == 'R' or (state == 'H' or state == 'P') and since + length * 1000 <= now_us) then
  -- It is marked for revocation, or it was lost: it has ended.
  was = 'granted'
--@spend
elseif state ~= 'F' and id == asked then
  was = 'granted'
  if state ~= 'C' then
--@spend
    state, since, length, rear = 'C', now, ARGV[2],
--&
      sub(rear, REAR.released) .. '00000001' .. sub(rear, REAR.range.behind)
--@last
    keep, ttl_changed = string.format('%016.0f', last_us + R_US), true
    ended = nil
  end
end
--@settle
if was ~= 'absent' then
--@next
end
if ended and state == 'F' and counts == 0 and ended + 0 > R_MS then
  keep, ttl_changed = string.format('%016.0f', now_us + R_US), true
end
--@save
return 'LEFT' .. said .. ' ' .. was
