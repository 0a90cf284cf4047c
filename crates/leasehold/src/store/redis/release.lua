#!lua flags=allow-oom
-- release: give the lease back. The next live waiter holds before this returns, and is told last.
--
-- KEYS     1 the record
-- ARGV     1 lh1H, token (16) and grant id (64): how the record begins, if the grant is still held
--          2 c if somebody is thought to wait: then the record is looked for as a hash first
-- RETURNS  RELEASED alone: nobody waited, and the time was not asked for
--          RELEASED … | NOTHELD …
--          FOREIGN type | NEWER version
-- EFFECTS  frees the record, or makes the next waiter its holder and publishes that. The key stays for R, with its token:
--          a repeat hears RELEASED, and tokens do not fall behind a clock that steps back.
-- RETRY    safe: a repeat of the last release answers RELEASED again (P3)
-- COST     GET, SETRANGE; with a queue TIME, HMGET, HMGET, PUBSUB NUMSUB, HDEL, HSET, PUBLISH, and two calls more for
--          each dead waiter, up to 64
local found
if not ARGV[2] then
  found = redis.pcall('GET', KEYS[1])
  -- An error has no length. A lease longer than R set a time to live that is longer than a free record needs.
  if found and #found > 0 and string.find(found, ARGV[1], 1, true) == 1 and string.sub(found, 85, 92) <= '00060000' then
    redis.call('SETRANGE', KEYS[1], '3', 'F')
    return 'RELEASED'
  end
end
--@clock
local name, asked = KEYS[1], nil
--@open
-- What is given back is not ended for its age first: it ends here anyway, and who comes next is the same.
local who, ended, word = sub(ARGV[1], 21), nil, 'NOTHELD'
if state ~= 'F' and id == who and token == sub(ARGV[1], 5, 20) then
  state, ended, word = 'F', length, 'RELEASED'
elseif (state == 'F' and id or prev) == who then
  word = 'RELEASED'
end
--@settle
if ended and state == 'F' and count == 0 and ended + 0 > R_MS then
  keep, ttl_changed = string.format('%016.0f', now_us + R_US), true
end
--@save
return word .. said
