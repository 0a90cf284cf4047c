#!lua
-- acquire_all: takes several mutexes, or none of them (P46).
--
-- KEYS     the records, of distinct names
-- ARGV     1 the earliest `not_after` in µs (16): after this time nothing is done (P4)
--          for each key four more, as those of acquire: grant id (64); lease in ms (8); number of tokens to reserve, and
--          the label; time to live in ms
-- RETURNS  16 digits: all of them are granted now. This is the token of each, and the server's time. Each whole lease is
--          left, all requested tokens are reserved, nobody waits
--          BUSY: at least one is held or waited for, has a token that is not before the server's time, is not a mutex, or
--          may not be written by this user; or the request is late. Nothing is changed
-- EFFECTS  makes the grants. It settles nothing, and ends no lease. Not `allow-oom`: see acquire
-- RETRY    a repeat gets BUSY. So the client sends it once, and gives all IDs back if there is no reply
-- COST     TIME; GET and SET for each name
--@clock
if now > ARGV[1] then return 'BUSY' end
local sub, nobody = string.sub, '----------------------------------------------------------------'
local records = {}
for at, name in ipairs(KEYS) do
  local id, found, last = ARGV[4 * at - 2], redis.pcall('GET', name), nobody
  if found then
    -- An error is a table: its # is 0.
    local is_free = #found > 0 and sub(found, RECORD.version.to.state) == 'lh1F'
    if not is_free or sub(found, RECORD.token) >= now then return 'BUSY' end
    last = sub(found, RECORD.id)
  end
  -- All or none: a command that is denied would end the script between two names.
  if last == id or not redis.acl_check_cmd('SET', name, '') then return 'BUSY' end
  records[at] = 'lh1H' .. now .. id .. ARGV[4 * at - 1] .. now .. last .. ARGV[4 * at]
end
for at, name in ipairs(KEYS) do redis.call('SET', name, records[at], 'PX', ARGV[4 * at + 1]) end
return now
