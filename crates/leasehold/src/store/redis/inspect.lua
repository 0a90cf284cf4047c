#!lua flags=no-writes
-- inspect: look, and change nothing. What has ended is shown as ended, and left for the next writer to drop.
--
-- KEYS     1 the record
-- ARGV     none
-- RETURNS  INSPECTED time token who-else-waits D - waiters [state public-id left label]
--          FOREIGN type | NEWER version
-- EFFECTS  none. The secret part of the grant id does not leave the store: who knows it can release.
-- RETRY    safe
-- COST     TIME, HMGET; without a queue GET more
--@clock
--@record
local refusal = open(KEYS[1], nil, '')
if refusal then return refusal end
local said = 'INSPECTED ' .. now .. ' ' .. token .. ' ' .. contention() .. ' D - ' .. format('%d', count)
if state == 'F' or end_us() <= now_us then return said end
return said .. ' ' .. state .. ' ' .. sub(id, 1, 48) .. ' ' .. left() .. ' ' .. label
