#!lua flags=no-writes
-- inspect: reads, and changes nothing. A vote that has ended is shown as ended. The next writer removes it.
--
-- KEYS     1 the record
-- ARGV     none
-- RETURNS  INSPECTED … waiters [since length state token public-id label]
--          FOREIGN type | NEWER version
-- EFFECTS  none. The secret part of the grant ID does not leave the store.
-- RETRY    safe
-- COST     TIME, GET; with a queue ZCARD
--@clock
local name, found = KEYS[1], redis.pcall('GET', KEYS[1])
--@open
local waiters = others == 'N' and '0' or string.format('%.0f', redis.call('ZCARD', queue))
local said = 'INSPECTED ' .. now .. ' ' .. highest .. ' ' .. others .. ' - ' .. waiters
if state == 'F' then return said end
local holder = sub(id, ID.public) .. ' ' .. sub(rear, TAIL.label)
return said .. ' ' .. since .. ' ' .. length .. ' ' .. state .. ' ' .. token .. ' ' .. holder
