#!lua flags=allow-oom
-- leave: stop waiting. A grant that was already made is handed on in the same step (P16).
--
-- KEYS     1 the record
-- ARGV     1 grant id (64)
-- RETURNS  LEFT … queued | LEFT … granted | LEFT … absent
--          FOREIGN type | NEWER version
-- EFFECTS  takes the entry out, or gives the grant back and publishes who holds now; settles
-- RETRY    safe: a repeat answers absent
-- COST     TIME, GET, SET; with more than 64 waiters TIME, GET, HMGET, a read for each neighbour, HSET, HDEL
--@clock
local name, asked, found = KEYS[1], ARGV[1], nil
--@open
local ended, was = nil, 'absent'
if entry then
  was = 'queued'
  count = count - 1
  if sub(entry, 66, 66) == 's' then strict = strict - 1 end
  if queue then
    local behind = at_entry + 64 + #entry
    if behind > #queue then tail_ticket = at_before and sub(queue, at_before + 64, at_before + 79) or ZEROS end
    queue = sub(queue, 1, at_entry - 1) .. sub(queue, behind)
  else
    local before, after = asked ~= head and sub(entry, -64), redis.call('HGET', name, 'n' .. asked)
    puts = { ['e' .. asked] = false, ['n' .. asked] = false }
    if before then puts['n' .. before] = after else head = after or NOBODY end
    if before and after then
      puts['e' .. after] = sub(redis.call('HGET', name, 'e' .. after), 1, -65) .. before
    elseif not after then
      tail, tail_ticket = before or NOBODY, before and sub(redis.call('HGET', name, 'e' .. before), 1, 16) or ZEROS
    end
  end
elseif state ~= 'F' and id == asked then
  state, ended, was = 'F', length, 'granted'
end
--@settle
if ended and state == 'F' and count == 0 and ended + 0 > R_MS then
  keep, ttl_changed = string.format('%016.0f', now_us + R_US), true
end
--@save
return 'LEFT' .. said .. ' ' .. was
