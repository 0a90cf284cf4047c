#!lua flags=allow-oom
-- Enters to read, and reads. Works if the memory is full, as reads do; does not work on a replica.
--
-- KEYS     as enter
-- ARGV     as enter
-- RETURNS  VALUE bytes | NONE | STALE mark | FOREIGN marks | FOREIGN data
-- EFFECTS  raises the mark of all
-- RETRY    safe: to read twice is to read
-- COST     as enter, and GET
--@marks
local value = redis.pcall('GET', guarded)
if type(value) == 'table' then
  if string.find(value.err, 'WRONGTYPE', 1, true) then return 'FOREIGN data' end
  return value
end
raise()
return value and 'VALUE ' .. value or 'NONE'
