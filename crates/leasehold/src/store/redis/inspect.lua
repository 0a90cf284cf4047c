#!lua flags=no-writes
-- inspect: reads, and changes nothing. A lease that has ended is shown as ended. The next writer removes it.
--
-- KEYS     1 the record
-- ARGV     none
-- RETURNS  INSPECTED … M 1 units holders waiters [h since length state token public-id 1 P label]
--          {w limit public-id 1 P label}: docs/PROTOCOL.md has the sentence
--          FOREIGN type | NEWER version
-- EFFECTS  none. The secret part of a grant ID does not leave the store: a client that knows it can release.
-- RETRY    safe
-- COST     TIME, HMGET; without a queue also GET; with a queue HMGET for each of the first 16 waiters
--@clock
local name, asked, found, got = KEYS[1], nil, nil, nil
--@open
local SHOWN = 16
local others = counts % 100000 > 0 and ' S D - ' or counts > 0 and ' O D - ' or ' N D - '
local is_held = state ~= 'F' and since + length * 1000 > now_us
local said = 'INSPECTED ' .. now .. ' ' .. token .. others
said = said .. (is_held and 'M 1 1 1 ' or 'M 1 0 0 ') .. string.format('%d', counts / 100000)
if is_held then
  said = said .. ' h ' .. since .. ' ' .. length .. ' ' .. state .. ' ' .. token .. ' '
--&
    .. sub(id, ID.public) .. ' 1 P ' .. sub(rear, REAR.label_length.from)
end
local who, shown = head, 0
while counts > 0 and who and who ~= NOBODY and shown < SHOWN do
  local waiter = redis.call('HMGET', name, 'e' .. who, 'n' .. who)
  if not waiter[1] then break end
  said = said .. ' w ' .. sub(waiter[1], ENTRY.limit) .. ' ' .. sub(who, ID.public)
--&
    .. ' 1 P ' .. sub(waiter[1], ENTRY.label_length.from)
  who, shown = waiter[2], shown + 1
end
return said
