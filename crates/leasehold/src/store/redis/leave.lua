#!lua flags=allow-oom
-- leave: stop waiting. A grant that was already made is handed on in the same step (P16).
--
-- KEYS     1 the record
-- ARGV     1 grant id (64)
-- RETURNS  LEFT … queued | LEFT … granted | LEFT … absent
--          FOREIGN type | NEWER version
-- EFFECTS  takes the entry out, or gives the grant back and publishes who holds now; settles
-- RETRY    safe: a repeat answers absent
-- COST     TIME, HMGET, HGET, HSET, HDEL, and a read for the neighbour; without a queue GET more, and SET
--@clock
local name, asked, found, got = KEYS[1], ARGV[1], nil, nil
--@open
local ended, was = nil, 'absent'
if entry then
  was = 'queued'
  local before, after = asked ~= head and sub(entry, 67, 130), redis.call('HGET', name, 'n' .. asked)
  puts = { ['e' .. asked] = false, ['n' .. asked] = false }
  if before then puts['n' .. before] = after else head = after or NOBODY end
  if before and after then
    local later = redis.call('HGET', name, 'e' .. after)
    puts['e' .. after] = sub(later, 1, 66) .. before .. sub(later, 131)
  elseif not after then
    tail, tail_ticket = before or NOBODY, before and sub(redis.call('HGET', name, 'e' .. before), 33, 48) or ZEROS
  end
  counts = counts - (sub(entry, 58, 58) == 's' and 100001 or 100000)
elseif state ~= 'F' and id == asked then
  state, ended, was = 'F', length, 'granted'
end
--@settle
if ended and state == 'F' and counts == 0 and ended + 0 > R_MS then
  keep, ttl_changed = string.format('%016.0f', now_us + R_US), true
end
--@save
return 'LEFT' .. said .. ' ' .. was
