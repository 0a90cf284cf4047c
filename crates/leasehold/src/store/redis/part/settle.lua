-- settle (P1), the step within every step: ends a lease whose time is over, and hands a free lease to the next live waiter.
-- Takes and changes the locals of `open`. `entry` becomes nil if the entry of `asked` was removed from the queue.
--@correct
--@expire
local looked_at = 0
while state == 'F' and counts > 0 do
  if looked_at == SETTLE_STEPS then
    rest = 'M'
    break
  end
  looked_at = looked_at + 1
  local who, e, n = head, 'e' .. head, 'n' .. head
  local got = redis.call('HMGET', name, e, n)
  local waiter, after = got[1], got[2]
  if puts then
    -- Fields that this step has changed, and not stored yet.
    if puts[e] then waiter = puts[e] end
    if puts[n] ~= nil then after = puts[n] end
    puts[e], puts[n] = false, false
  else
    puts = { [e] = false, [n] = false }
  end
  if who == asked then entry = nil end
  head = after or NOBODY
  if not after then tail = NOBODY end
  counts = counts - (sub(waiter, ENTRY.order) == 's' and 100001 or 100000)
--@alive
  if alive then
--@promote
  end
end
if counts == 0 then lapses = '' end
