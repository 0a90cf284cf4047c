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
local name, asked, who, used = KEYS[1], nil, string.sub(ARGV[1], RECORD.id.from), ARGV[3]
if ARGV[2] and ARGV[2] ~= '' then
--@pass
end
--@open
-- A lease that is given back is not ended because of its age first: it ends here anyway, and the next waiter is the same.
local ended, word = nil, 'NOTHELD'
if state ~= 'F' and state ~= 'C' and id == who and token == sub(ARGV[1], RECORD.token) then
  word = 'RELEASED'
--@spend
elseif state == 'C' and id == who or (state == 'F' and id or sub(rear, REAR.released)) == who then
  word = 'RELEASED'
end
--@settle
if ended and state == 'F' and counts == 0 and ended + 0 > R_MS then
  keep, ttl_changed = string.format('%016.0f', now_us + R_US), true
end
--@save
return word .. said
