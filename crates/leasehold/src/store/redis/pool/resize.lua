#!lua flags=allow-oom
-- pool/resize: gives a semaphore another number of permits (P40). Grants beyond a smaller number live on.
--
-- KEYS     1 the record
-- ARGV     1 lh1S and the limit that the caller saw (6)
--          2 the new limit (6)
--          3 not_after in µs (16): after this time nothing is done (P4)
-- RETURNS  RESIZED … | REFUSED … other|many kind limit | LATE …
--          OTHER | FOREIGN type | NEWER version
-- EFFECTS  changes the limit, and grants to the waiters that fit now. A name without a record gets one, for R: otherwise a
--          client that knows only the earlier limit could begin the name with it
-- RETRY    safe: a repeat finds the new limit
-- COST     TIME, HMGET, HSET; with a queue the cost of serving as in release
--@clock
--@pool
local pool = open(KEYS[1], nil)
if not pool.puts then return pool end
local begins = sub(ARGV[1], POOL.version.to.kind) .. ARGV[2]
if now <= ARGV[3] then
  if pool.record and pool.begins ~= ARGV[1] and pool.begins ~= begins then
    local refused = said_other(pool)
    settle(pool)
    return 'REFUSED' .. save(pool) .. refused
  end
  if ARGV[2] + 0 == 0 then
    settle(pool)
    return 'REFUSED' .. save(pool) .. ' many S 999999'
  end
  pool.begins, pool.kind, pool.limit = begins, 'S', ARGV[2] + 0
  if not pool.record then pool.last, pool.keep = now, now_us + R_US end
end
settle(pool)
return (now <= ARGV[3] and 'RESIZED' or 'LATE') .. save(pool)
