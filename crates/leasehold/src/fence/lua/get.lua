
-- get: enters to read, and reads.
--
-- RETURNS  VALUE bytes | NONE
local value = redis.pcall('GET', guarded)
if type(value) == 'table' then
  if string.find(value.err, 'WRONGTYPE', 1, true) then return 'FOREIGN data' end
  return value
end
raise()
return value and 'VALUE ' .. value or 'NONE'
