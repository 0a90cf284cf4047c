-- head: reads the head of the queue.
do
  local first = redis.call('ZRANGE', queue, '0', '0', 'WITHSCORES')
  head, head_ticket = first[1], first[2]
  others = not head and 'N' or sub(head, MEMBER.order.from) == 's' and 'S' or 'O'
end
