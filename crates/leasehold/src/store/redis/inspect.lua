#!lua flags=no-writes
-- inspect: reads, and changes nothing. A lease that has ended is shown as ended. The next writer removes it.
--
-- KEYS     1 the record
-- ARGV     none
-- RETURNS  INSPECTED … waiters [since length state public-id label]
--          FOREIGN type | NEWER version
-- EFFECTS  none. The secret part of the grant ID does not leave the store: a client that knows it can release.
-- RETRY    safe
-- COST     TIME, HMGET; without a queue also GET
--@clock
local name, asked, found, got = KEYS[1], nil, nil, nil
--@open
local others = counts % 100000 > 0 and ' S D - ' or counts > 0 and ' O D - ' or ' N D - '
local said = 'INSPECTED ' .. now .. ' ' .. token .. others .. string.format('%d', counts / 100000)
if state == 'F' or since + length * 1000 <= now_us then return said end
return said .. ' ' .. since .. ' ' .. length .. ' ' .. state .. ' '
--&
  .. sub(id, ID.public) .. ' ' .. sub(rear, REAR.label)
