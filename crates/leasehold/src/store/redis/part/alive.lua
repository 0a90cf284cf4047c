-- alive: decides whether an entry may be granted. Takes `who`, the ID, and `waiter`, the entry. Sets `alive`, `session`,
-- `channel` (the inbox) and `listens`.
--
-- PUBSUB NUMSUB shows whether an inbox is attached. The result of PUBLISH does not: with a pattern subscriber it counts 1
-- for a dead inbox, and in a cluster it can be 0 for a delivered message. To skip that waiter would make two holders (P6).
local session, limit, seen = sub(who, ID.session), sub(waiter, ENTRY.limit), sub(waiter, ENTRY.seen)
local channel, alive, listens = inboxes .. session, limit == ZEROS or limit > now, sub(waiter, ENTRY.hears) == 'L'
-- An entry that was seen in the future was seen before the clock was set back. It counts as never seen, until it re-checks.
if seen > now then seen = ZEROS end
for at = 1, #lapses, LAPSE.size do
  if sub(lapses, LAPSE(at).session) == session and seen < sub(lapses, LAPSE(at).time) then alive = false end
end
if alive and listens then
  alive = redis.call('PUBSUB', 'NUMSUB', channel)[2] > 0
elseif alive then
  local floor_ms = math.min(math.floor(sub(waiter, ENTRY.lease) / 3), 5000)
  alive = seen + 3 * floor_ms * 1000 > now_us
end
