-- lapse: the call is over. Whoever let it lapse goes, from that place and from no other: it comes back by its next look.
if called and called_until <= now and others ~= 'N' then
  local at, ticket = redis.call('ZMSCORE', queue, called .. 's', called .. 'r'), called_ticket + 0
  if at[1] and at[1] + 0 == ticket or at[2] and at[2] + 0 == ticket then
    redis.call('ZREM', queue, called .. 's', called .. 'r')
  end
--@head
end
called = nil
