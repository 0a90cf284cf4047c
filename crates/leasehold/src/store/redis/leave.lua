#!lua flags=allow-oom
-- leave: stop waiting. A grant that was already made is handed on in the same step (P16).
--
-- KEYS     1 the record
-- ARGV     1 grant id (64)
-- RETURNS  LEFT … queued | LEFT … granted | LEFT … absent, after `finish`
--          FOREIGN type | NEWER version
-- EFFECTS  takes the entry out, or gives the grant back and publishes who holds now; settles
-- RETRY    safe: a repeat answers absent
-- COST     TIME, HMGET, HDEL, HSET, and a read and a write more for the neighbours; without a queue GET more and SET
--@clock
--@record
local who = ARGV[1]
local refusal = open(KEYS[1], nil, who)
if refusal then return refusal end
if entries[who] then
  unlink(who)
  settle()
  return finish('LEFT', 'queued')
end
if state ~= 'F' and id == who then
  give_back()
  return finish('LEFT', 'granted')
end
settle()
return finish('LEFT', 'absent')
