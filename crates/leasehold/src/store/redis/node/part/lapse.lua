-- lapse: ends the call. A waiter that let its call lapse leaves the queue, if it still has the place at which it was
-- called. Its next re-check brings it back.
if called and called_until <= now and others ~= 'N' then
  local at, ticket = redis.call('ZMSCORE', queue, called .. 's', called .. 'r'), called_ticket + 0
  if at[1] and at[1] + 0 == ticket or at[2] and at[2] + 0 == ticket then
    redis.call('ZREM', queue, called .. 's', called .. 'r')
  end
--@head
end
called = nil
