#!lua flags=allow-oom
-- reserve: reserves more tokens for a grant, so that its session can hand the lease on locally (P19).
--
-- KEYS     1 the record
-- ARGV     1 token (16), grant id (64), and the wanted length of its range (8), counted from its own token
-- RETURNS  RESERVED … range | LOST … revoked | LOST … notheld
--          FOREIGN type | NEWER version
-- EFFECTS  makes the range that long, but not further ahead of the clock than LEAD_US, and never shorter. Settles.
-- RETRY    safe: a repeat returns the range that there is
-- COST     TIME, GET, SET; with a queue also HMGET, HSET
--@clock
local name, asked, found, got = KEYS[1], nil, redis.pcall('GET', KEYS[1]), nil
--@open
--@settle
local word, range = 'LOST', ' notheld'
if state ~= 'F' and state ~= 'C' and token .. id == sub(ARGV[1], RESERVE.token.to.id) then
  word, range = state == 'R' and 'LOST' or 'RESERVED', ' revoked'
end
if word == 'RESERVED' then
  range = sub(ARGV[1], RESERVE.range.from)
  local allowed = math.max(now_us + LEAD_US - token, 1)
  if range + 0 > allowed then range = string.format('%08.0f', allowed) end
  if range < sub(rear, REAR.range) then range = sub(rear, REAR.range) end
  rear = sub(rear, REAR.released) .. range .. sub(rear, REAR.range.behind)
  if token + range - 1 > since + length * 1000 then
--@last
    if not keep or keep + 0 < last_us + R_US then
      keep, ttl_changed = string.format('%016.0f', last_us + R_US), true
    end
  end
  range = ' ' .. range
end
--@save
return word .. said .. range
