-- settle: calls the first who waits and is there, if the vote is free and nobody is called. Whoever let a call lapse goes:
-- it comes back by its next look.
local is_called = false
if state == 'F' and called then
  if called_until > now then
    if others ~= 'N' and not head then
--@head
    end
    -- Who came earlier, and stands before the one that was called, is called instead.
    is_called = others == 'N' or head_ticket + 0 >= called_ticket + 0
  elseif others ~= 'N' then
    -- At that place, and at no other.
    local at, ticket = redis.call('ZMSCORE', queue, called .. 's', called .. 'r'), called_ticket + 0
    if at[1] and at[1] + 0 == ticket or at[2] and at[2] + 0 == ticket then
      redis.call('ZREM', queue, called .. 's', called .. 'r')
    end
    head = nil
  end
  if not is_called then called = nil end
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
    -- Attachment is asked for, never found out by publishing (P6).
    if redis.call('PUBSUB', 'NUMSUB', front .. 'inbox:' .. sub(who, 1, 32))[2] > 0 then
      called, called_ticket = sub(who, 1, 64), string.format('%016.0f', ticket)
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
    told[at + 1] = front .. 'inbox:' .. sub(called, 1, 32)
    told[at + 2] = 'lq1 C ' .. called .. ' ' .. highest .. ' ' .. now .. ' ' .. others .. ' - - ' .. name
  end
end
