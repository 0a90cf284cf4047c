-- next: notifies the next waiters of a new end of the lease: one waiter of a session, and REVOKE_NOTIFIED in all. A lease
-- that is marked (P10) or cools down (P23) ends at another time than its waiters know, and the server does nothing by
-- itself at that time. Comes after `settle`.
if (state == 'R' or state == 'C') and counts > 0 then
  local left_us = string.format('%.0f', since + length * 1000 - now_us)
  local others = counts % 100000 > 0 and ' S D ' or ' O D '
  local who, looked_at, notified, before = head, 0, 0, nil
  while who and who ~= NOBODY and looked_at < SETTLE_STEPS and notified < REVOKE_NOTIFIED do
    local e, n = 'e' .. who, 'n' .. who
    local got = redis.call('HMGET', name, e, n)
    local waiter, after = got[1], got[2]
    if puts then
      -- Fields that this step has changed, and not stored yet.
      if puts[e] then waiter = puts[e] end
      if puts[n] ~= nil then after = puts[n] end
    end
--@alive
    if alive and listens and session ~= before then
      told = told or {}
      local at = #told
      told[at + 1] = channel
      told[at + 2] = 'lh1 E ' .. who .. ' ' .. token .. ' ' .. left_us .. ' ' .. now .. others .. '00000001 ' .. name
      notified, before = notified + 1, session
    end
    who, looked_at = after, looked_at + 1
  end
end
