#!lua flags=allow-oom
-- begin: the node votes at once, whatever it may have forgotten: no lease of this quorum is held by anybody.
--
-- KEYS     1 the marker
-- ARGV     1 the charter (12)
--          2 the server's run id
--          3 K or F, as in enter
--          4 the marker that is to be there still: of this run, and as it was when the node was asked for holders. Whatever
--            has taken its records since has taken it, too. Empty: any, or none
-- RETURNS  MARKED time marker | CHANGED time
--          FOREIGN type | NEWER version
-- EFFECTS  the marker, whatever charter it had before. The records stay
-- RETRY    safe; with a marker that is to be there it may answer CHANGED, and has begun
-- COST     TIME, GET, SET
--@clock
local found = redis.pcall('GET', KEYS[1])
if found then
  -- An error has no length.
  local version = #found > 0 and string.match(found, '^lq(%d+)m')
  if version and version ~= '1' then return 'NEWER ' .. version end
  if not version then return 'FOREIGN ' .. redis.call('TYPE', KEYS[1]).ok end
end
if ARGV[4] ~= '' and found ~= ARGV[4] then return 'CHANGED ' .. now end
local marker = 'lq1m0000000000000000' .. ARGV[1] .. ARGV[3] .. 'N' .. ARGV[2]
redis.call('SET', KEYS[1], marker)
return 'MARKED ' .. now .. ' ' .. marker
