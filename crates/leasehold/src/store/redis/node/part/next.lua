-- next: notifies the next waiters of a new end of the vote: one waiter of a session, and REVOKE_NOTIFIED in all. A vote
-- that is marked (P10) or cools down (P23) ends at another time than its waiters know, and the server does nothing by
-- itself at that time. In a pause of a run, `notice` is the time in µs after which they ask.
if (notice or state == 'R' or state == 'C') and others ~= 'N' then
  local left = notice or string.format('%.0f', since + length * 1000 - now_us)
  local notified, before = 0, nil
  for _, who in ipairs(redis.call('ZRANGE', queue, '0', SETTLE_STEPS - 1)) do
    local session = sub(who, MEMBER.id.session)
    if session ~= before and redis.call('PUBSUB', 'NUMSUB', front .. 'inbox:' .. session)[2] > 0 then
      told = told or {}
      local at = #told
      told[at + 1] = front .. 'inbox:' .. session
      told[at + 2] = 'lq1 E ' .. sub(who, MEMBER.id) .. ' '
--&
        .. highest .. ' ' .. now .. ' ' .. others .. ' ' .. token .. ' '
        .. left .. ' ' .. name
      notified, before = notified + 1, session
      if notified == REVOKE_NOTIFIED then break end
    end
  end
end
