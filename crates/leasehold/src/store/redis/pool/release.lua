#!lua flags=allow-oom
-- pool/release: gives units back. Waiters that fit hold before this returns. The messages to them are sent last.
--
-- KEYS     1 the record
-- ARGV     1 grant id (64)
--          2 token (16)
-- RETURNS  B and 16 digits: nobody waited, and the script did not read the time. These are the highest token
--          RELEASED … | NOTHELD …
--          OTHER | FOREIGN type | NEWER version
-- EFFECTS  ends the grant; if somebody waits, grants to those that fit, and notifies them. The key stays for R, with the
--          last token: so a repeat gets RELEASED, and tokens do not fall behind a clock that steps back
-- RETRY    safe: a repeat of the last release gets RELEASED again (P3)
-- COST     HMGET, HSET, HDEL; with a queue TIME, HMGET, HMGET, PUBSUB NUMSUB, HSET, HDEL, PUBLISH, and two calls for each
--          further waiter, up to 64
--@free
--@clock
--@pool
local pool = open(KEYS[1], ARGV[1], got)
if not pool.puts then return pool end
local field, grant = find_grant(pool, ARGV[1])
-- A lease that is given back is not ended because of its age first: it ends here anyway.
if grant and sub(grant, GRANT.state) ~= 'C' and sub(grant, GRANT.token) == ARGV[2] then
  give_back(pool, ARGV[1], field, grant)
  return 'RELEASED' .. save(pool)
end
local was_given_back = grant and sub(grant, GRANT.state) == 'C' or pool.released == ARGV[1]
settle(pool)
return (was_given_back and 'RELEASED' or 'NOTHELD') .. save(pool)
