#!lua flags=allow-oom
-- revoke: asks the holder to stop, and ends its vote after the grace (P10).
--
-- KEYS     1 the record
-- ARGV     1 public part of the grant id (48) and token (16), as the caller saw them: a later holder is not revoked
--          2 grace in ms
-- RETURNS  REVOKING … left | NOTHELD …
--          FOREIGN type | NEWER version
-- EFFECTS  marks the grant and shortens its vote to the grace; notifies the holder, and the next waiters; settles. The
--          marker is not checked, because no vote is given.
-- RETRY    safe: a marked grant is marked again, and its vote never grows
-- COST     TIME, GET, SET, PUBLISH; a call as in give_back, or ZRANGE, and PUBSUB NUMSUB and PUBLISH for two waiters
--@clock
local name, found = KEYS[1], redis.pcall('GET', KEYS[1])
--@open
local left = nil
if state ~= 'F' and sub(id, ID.public) .. token == ARGV[1] then
  -- Nobody works under a vote that cools down, so nobody needs a grace.
  local grace_ms = state == 'C' and 0 or ARGV[2]
  local left_us = math.min(since + length * 1000 - now_us, grace_ms * 1000)
  left = string.format('%.0f', left_us)
  told = { front .. 'inbox:' .. sub(id, ID.session),
    'lq1 R ' .. id .. ' ' .. highest .. ' ' .. now .. ' ' .. others .. ' ' .. token .. ' ' .. left .. ' ' .. name }
  -- The holder may miss the message, and renew: then the node must not be filled with its grant.
  released = id
  if left_us == 0 then
    state = 'F'
  else
    -- Exact to the microsecond: if it were rounded up from now, each repeat would make it end later.
    local length_ms = math.ceil(left_us / 1000)
    state, length = 'R', string.format('%08.0f', length_ms)
    since = string.format('%016.0f', now_us + left_us - length_ms * 1000)
--@next
  end
end
--@settle
--@save
if left then return 'REVOKING' .. said .. ' ' .. left end
return 'NOTHELD' .. said
