
-- write: enters to write, and sets the guarded key; without a value, removes it.
--
-- RETURNS  DONE
local kind = redis.call('TYPE', guarded).ok
if kind ~= 'string' and kind ~= 'none' then return 'FOREIGN data' end
-- The mark first: with a full memory this is the command that fails, and nothing has happened.
raise()
if repeated then return 'DONE' end
if ARGV[6] then
  redis.call('SET', guarded, ARGV[6], 'KEEPTTL')
else
  redis.call('DEL', guarded)
end
return 'DONE'
