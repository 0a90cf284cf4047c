#!lua flags=allow-oom
-- leave: stop waiting. A grant that was already made is handed on in the same step (P16).
--
-- KEYS     1 the record
-- ARGV     1 grant id (64)
-- RETURNS  LEFT … queued | LEFT … granted | LEFT … absent
--          FOREIGN type | NEWER version
-- EFFECTS  takes the entry out, or gives the grant back and publishes who holds now; settles
-- RETRY    safe: a repeat answers absent
-- COST     TIME, HMGET, HDEL, HSET, and a read and a write more for the neighbours; without a queue GET more and SET
--@clock
local name, asked, found = KEYS[1], ARGV[1], nil
--@open
local ended, was = nil, 'absent'
if entry then
  was = 'queued'
  local before, after = asked ~= head and sub(entry, 67, 130), redis.call('HGET', name, 'n' .. asked)
  puts = { ['e' .. asked] = false, ['n' .. asked] = false }
  if before then puts['n' .. before] = after end
  if not before then
    head = after or NOBODY
  elseif after then
    local later = redis.call('HGET', name, 'e' .. after)
    puts['e' .. after] = sub(later, 1, 66) .. before .. sub(later, 131)
  end
  if not after then
    tail = before or NOBODY
    tail_ticket = before and sub(redis.call('HGET', name, 'e' .. before), 1, 16) or ZEROS
  end
  count = count - 1
  if sub(entry, 66, 66) == 's' then strict = strict - 1 end
elseif state ~= 'F' and id == asked then
  state, ended, was = 'F', length, 'granted'
end
--@settle
if ended and state == 'F' and count == 0 and ended + 0 > R_MS then
  keep, ttl_changed = string.format('%016.0f', now_us + R_US), true
end
--@save
return 'LEFT' .. said .. ' ' .. was
