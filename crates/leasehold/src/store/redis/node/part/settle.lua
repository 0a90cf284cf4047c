-- settle: calls the first waiter that is attached, if the vote is free and nobody is called.
local is_called = false
if state == 'F' and called then
  if called_until > now then
    if others ~= 'N' and not head then
--@head
    end
    -- A waiter with an earlier place than the called one is called instead.
    is_called = others == 'N' or head_ticket + 0 >= called_ticket + 0
  end
  if not is_called then
--@lapse
  end
end
if state == 'F' and not is_called and others ~= 'N' then
  if not head then
--@head
  end
  local dead, page = 0, { head, head_ticket }
  while dead < SETTLE_STEPS do
    if dead == 1 then page = redis.call('ZRANGE', queue, '0', SETTLE_STEPS - 1, 'WITHSCORES') end
    local who, ticket = page[2 * dead + 1], page[2 * dead + 2]
    if not who then break end
    -- PUBSUB NUMSUB shows whether an inbox is attached. The result of PUBLISH does not (P6).
    if redis.call('PUBSUB', 'NUMSUB', front .. 'inbox:' .. sub(who, MEMBER.id.session))[2] > 0 then
      called, called_ticket = sub(who, MEMBER.id), string.format('%016.0f', ticket)
      called_until, has_called = string.format('%016.0f', now_us + CALL_US), 'C'
      if keep + 0 < called_until + R_US then keep = string.format('%016.0f', called_until + R_US) end
      break
    end
    dead = dead + 1
  end
  if dead > 0 then
    redis.call('ZREMRANGEBYRANK', queue, '0', dead - 1)
--@head
  end
  if has_called == 'C' then
    told = told or {}
    local at = #told
    told[at + 1] = front .. 'inbox:' .. sub(called, ID.session)
    told[at + 2] = 'lq1 C ' .. called .. ' ' .. highest .. ' ' .. now .. ' ' .. others .. ' - - ' .. name
  end
end
