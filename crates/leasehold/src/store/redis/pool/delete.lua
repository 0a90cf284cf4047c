#!lua flags=allow-oom
-- pool/delete: deletes a latch, if it is the one that the caller saw (P44).
--
-- KEYS     1 the record
-- ARGV     1 token of the creation of the latch (16)
-- RETURNS  DELETED …
--          OTHER | FOREIGN type | NEWER version
-- EFFECTS  removes the count-downs and the waiters. Notifies the first SETTLE_STEPS waiters to ask again: they are refused
--          then. The key stays for R, with the last token, so that the next latch of the name has a larger one
-- RETRY    safe: a repeat changes nothing
-- COST     TIME, HMGET, HGET, UNLINK, HSET, PEXPIRE; HMGET and PUBLISH for each waiter; HSCAN and HSET for grants that
--          waiters of an open latch have not given back yet
--@clock
--@pool
-- Removes everything from the hash but the grants. The server frees the memory of an unlinked key in the background.
local function clear(pool)
  local kept = {}
  local cursor = pool.grants > 0 and '0'
  while cursor do
    local found = redis.call('HSCAN', pool.name, cursor, 'MATCH', 'g*', 'COUNT', SCANNED)
    for at = 1, #found[2], 2 do kept[found[2][at]] = found[2][at + 1] end
    cursor = found[1] ~= '0' and found[1]
  end
  for field, value in pairs(pool.puts) do
    if sub(field, FIELD.kind) == 'g' then kept[field] = value or nil end
  end
  redis.call('UNLINK', pool.name)
  for field, grant in pairs(kept) do redis.call('HSET', pool.name, field, grant) end
  pool.record, pool.queue, pool.puts, pool.ends = nil, false, {}, nil
end

local pool = open(KEYS[1], nil)
if not pool.puts then return pool end
settle(pool)
if not latch_left(pool) or sub(read(pool, 'l'), LATCH.born) ~= ARGV[1] then return 'DELETED' .. save(pool) end
local who, notified = pool.counts > 0 and pool.head, 0
while who and who ~= NOBODY and notified < SETTLE_STEPS do
  tell_dismissed(pool, who, ARGV[1])
  local _, after = read_two(pool, who)
  who, notified = after, notified + 1
end
clear(pool)
set_limit(pool, 0)
pool.counts, pool.lapses, pool.rest, pool.keep = 0, '', 'D', now_us + R_US
-- A cursor means nothing to another hash.
pool.cursor = ''
return 'DELETED' .. save(pool)
