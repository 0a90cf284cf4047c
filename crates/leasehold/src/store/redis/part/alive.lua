-- alive: whether an entry may be granted. Takes `who`, the id, and `waiter`, the entry. Gives `alive`, `session`, `channel`
-- (its inbox) and `listens`.
--
-- Attachment is asked for, never found out by publishing: a pattern subscriber makes PUBLISH count 1 for a dead inbox,
-- and in a cluster 0 can mean delivered: skipping then makes two holders (P6).
local session, limit, seen = sub(who, 1, 32), sub(waiter, 1, 16), sub(waiter, 17, 32)
local channel, alive, listens = inboxes .. session, limit == ZEROS or limit > now, sub(waiter, 57, 57) == 'L'
-- An entry seen in the future was seen before the clock was set back, and counts as never seen. A look brings it back.
if seen > now then seen = ZEROS end
for at = 1, #lapses, 48 do
  if sub(lapses, at, at + 31) == session and seen < sub(lapses, at + 32, at + 47) then alive = false end
end
if alive and listens then
  alive = redis.call('PUBSUB', 'NUMSUB', channel)[2] > 0
elseif alive then
  local floor_ms = math.min(math.floor(sub(waiter, 59, 66) / 3), 5000)
  alive = seen + 3 * floor_ms * 1000 > now_us
end
