-- wait: makes the entry of a new waiter, and notifies the holder of a range if somebody begins to wait (P9). Sets `word`
-- and `joined`.
word, joined = 'QUEUED', ' now'
if counts == 0 then
--@last
  last_us = math.max(last_us, now_us)
  if not keep or keep + 0 < last_us + R_US then
    keep, ttl_changed = string.format('%016.0f', last_us + R_US), true
  end
end
local after, later
if ticket and counts > 0 and ticket <= tail_ticket then
  after, later = later_than(ticket)
  if not after then ticket = nil end
end
-- Too far from the head: it gets a place at the tail and a new ticket, like a new waiter.
if not ticket then ticket = counts > 0 and tail_ticket >= now and string.format('%016.0f', tail_ticket + 1) or now end
local before, range = counts, sub(rear, REAR.range)
enqueue(after, later, ARGV[6] .. lease_ms, ARGV[3])
local is_strict = counts % 100000 > 0
if state ~= 'F' and range ~= '00000001' and (before == 0 or is_strict and before % 100000 == 0) then
  told = told or {}
  told[#told + 1] = inboxes .. sub(id, ID.session)
  local left_us = string.format('%.0f', since + length * 1000 - now_us)
  told[#told + 1] = 'lh1 W ' .. id .. ' ' .. token .. ' ' .. left_us .. ' ' .. now .. (is_strict and ' S D ' or ' O D ')
    .. range .. ' ' .. name
end
