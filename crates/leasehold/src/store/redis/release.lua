#!lua flags=allow-oom
-- release: gives the lease back. The next live waiter holds before this returns. The message to that waiter is sent last.
--
-- KEYS     1 the record
-- ARGV     1 lh1H, token (16) and grant id (64): how the record begins if the grant is held and nobody waits
--          2 if the client believes that somebody waits, the prefix of the channel names of sessions: then the record is
--            read as a hash first; absent or empty: nobody waits
--          3 the highest token of its range that was used (16), unless it is the grant's own token (P19)
-- RETURNS  RELEASED alone: nobody waited, and the script did not read the time
--          RELEASED … | NOTHELD …
--          FOREIGN type | NEWER version
-- EFFECTS  frees the record, or makes the next waiter its holder and notifies it. The key stays for R, with the last token
--          that was used: so a repeat gets RELEASED, and tokens do not fall behind a clock that steps back.
-- RETRY    safe: a repeat of the last release gets RELEASED again (P3)
-- COST     GET, SETRANGE; with a queue TIME, HMGET, HMGET, PUBSUB NUMSUB, HSET, HDEL, PUBLISH, and two calls for each dead
--          waiter, up to 64
local found, got
if not ARGV[2] or ARGV[2] == '' then
--@free
end
--@clock
--@release
