#!lua flags=allow-oom
-- begin: ends a quarantine. The node votes immediately, although it may have forgotten votes: no lease of this quorum is
-- held.
--
-- KEYS     1 the marker
-- ARGV     1 the charter (12)
--          2 the server's run id
--          3 K or F, as in enter
--          4 the expected marker: of this run, and as it was when the node was asked for holders. If somebody has removed
--            the records since then, the marker is gone, too. Empty: any marker, or none
-- RETURNS  MARKED time marker | CHANGED time
--          FOREIGN type | NEWER version
-- EFFECTS  writes the marker, for any earlier charter. The records stay
-- RETRY    safe; with an expected marker, a repeat may return CHANGED although the first call had its effect
-- COST     TIME, GET, SET
--@clock
local found = redis.pcall('GET', KEYS[1])
if found then
  -- An error is a table: its # is 0.
  local version = #found > 0 and string.match(found, '^lq(%d+)m')
  if version and version ~= '1' then return 'NEWER ' .. version end
  if not version then return 'FOREIGN ' .. redis.call('TYPE', KEYS[1]).ok end
end
if ARGV[4] ~= '' and found ~= ARGV[4] then return 'CHANGED ' .. now end
local marker = 'lq1m0000000000000000' .. ARGV[1] .. ARGV[3] .. 'N' .. ARGV[2]
redis.call('SET', KEYS[1], marker)
return 'MARKED ' .. now .. ' ' .. marker
