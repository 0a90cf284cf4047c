#!lua flags=allow-oom
-- enter: a client greets the node, and gets the marker from now on. Votes depend on the marker. Its layout is MARKER: see
-- redis/layout.rs, or the table in docs/PROTOCOL.md.
--
-- KEYS     1 the marker
-- ARGV     1 the charter (12)
--          2 the server's run id
--          3 K the server saves every change before it replies, as far as is known now; F it does not
--          4 length of a quarantine in µs
-- RETURNS  MARKED time marker | UNLIKE time charter
--          FOREIGN type | NEWER version
-- EFFECTS  writes the marker, without a time to live. `allow-oom`: it is one short key, and a client that cannot greet
--          cannot give back.
-- RETRY    safe: the same marker again
-- COST     TIME, GET; for the first client of a run also SET
--@clock
local found = redis.pcall('GET', KEYS[1])
local rests, memory, past = string.format('%016.0f', now + ARGV[4]), ARGV[3], 'N'
if found then
  -- An error is a table: its # is 0.
  local version = #found > 0 and string.match(found, '^lq(%d+)m')
  if version and version ~= '1' then return 'NEWER ' .. version end
  if not version or not string.find(found, '^lq1m%d+[KF]') or string.find(found, '[KF]') ~= MARKER.memory.from then
    return 'FOREIGN ' .. redis.call('TYPE', KEYS[1]).ok
  end
  if string.sub(found, MARKER.charter) ~= ARGV[1] then
--&
    return 'UNLIKE ' .. now .. ' ' .. string.sub(found, MARKER.charter) end
  local is_same_run, before = string.sub(found, MARKER.run) == ARGV[2], string.sub(found, MARKER.memory)
  if is_same_run or memory == 'K' and before == 'K' then
    -- If it ends later than a quarantine that begins now, the clock was set back.
    if string.sub(found, MARKER.rests) < rests then rests = string.sub(found, MARKER.rests) end
  end
  if is_same_run and before == 'F' then memory = 'F' end
  past = is_same_run and string.sub(found, MARKER.past) or 'U'
end
local marker = 'lq1m' .. rests .. ARGV[1] .. memory .. past .. ARGV[2]
if marker ~= found then redis.call('SET', KEYS[1], marker) end
return 'MARKED ' .. now .. ' ' .. marker
