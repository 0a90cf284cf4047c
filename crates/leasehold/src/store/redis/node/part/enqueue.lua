-- enqueue: puts `asked`, which is not in the queue, at the place `wait`, ticket and order.
local before = others
if before == 'N' then
  -- According to the record, nobody waits. If there is a queue, its record is gone, or the queue is not ours.
  local left = redis.call('ZRANGE', queue, '0', '0')[1]
  if left and not string.find(left, '^%x+[sr]$') then return 'FOREIGN zset' end
  if left then redis.call('DEL', queue) end
end
redis.call('ZADD', queue, sub(wait, WAIT.ticket), asked .. sub(wait, WAIT.order.from))
if before == 'N' then
  head, head_ticket, others = asked .. sub(wait, WAIT.order.from), sub(wait, WAIT.ticket),
--&
    sub(wait, WAIT.order.from) == 's' and 'S' or 'O'
else
--@head
end
is_queue_new = before == 'N'
if keep + 0 < now_us + R_US then keep = string.format('%016.0f', now_us + R_US) end
-- The holder of a range may be handing the lease on inside its session (P9). N, O and S are in the order of the alphabet.
if others > before and state ~= 'F' and sub(rear, TAIL.range) > '00000001' then
  told = { front .. 'inbox:' .. sub(id, ID.session),
    'lq1 W ' .. id .. ' ' .. highest .. ' ' .. now .. ' ' .. others .. ' ' .. token .. ' - ' .. name }
end
