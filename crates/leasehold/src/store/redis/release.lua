#!lua flags=allow-oom
-- release: gives the lease back. The next live waiter holds before this returns. The message to it is sent last.
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
  found = redis.pcall('GET', KEYS[1])
  -- An error has no length. A lease that is longer than R has set a longer time to live than a free record needs.
  if found and #found > 0 and string.find(found, ARGV[1], 1, true) == 1 and string.sub(found, 85, 92) <= '00060000' then
    local used = ARGV[3]
    if not used then
      redis.call('SETRANGE', KEYS[1], '3', 'F')
      return 'RELEASED'
    end
    local more = used - string.sub(found, 5, 20)
    if more >= 0 and more < string.sub(found, 173, 180) + 0 then
      redis.call('SETRANGE', KEYS[1], '3', 'F' .. used)
      return 'RELEASED'
    end
  end
end
--@clock
local name, asked, who, used = KEYS[1], nil, string.sub(ARGV[1], 21), ARGV[3]
if ARGV[2] and ARGV[2] ~= '' then
  -- The usual case with a queue: the holder gives back, and the head listens. The code below would do and return the same.
  -- This short path does not take the record apart, which saves a quarter of the server time of a busy lock.
  local sub = string.sub
  got = redis.pcall('HMGET', name, 'r', 'q')
  local record, queue = got[1], got[2]
  local counts = queue and #queue == 170 and sub(queue, 81, 90)
  if record and counts and counts ~= '0000000000' and string.find(record, '^lh1[HPR]')
    and string.find(record, sub(ARGV[1], 5), 1, true) == 5 and sub(record, 5, 20) < now
    and (not used or used < now) then
    local head = sub(queue, 17, 80)
    local e, n, channel = 'e' .. head, 'n' .. head, ARGV[2] .. sub(head, 1, 32)
    local next_two = redis.call('HMGET', name, e, n)
    local waiter, after = next_two[1], next_two[2]
    local claim_ms, how, lease_ms = sub(waiter, 49, 56), sub(waiter, 57, 58), sub(waiter, 59, 66)
    local keep = sub(queue, 1, 16)
    if lease_ms < claim_ms then claim_ms = lease_ms end
    if sub(waiter, 1, 16) == '0000000000000000' and (how == 'Lr' or how == 'Ls')
      and keep + 0 >= now + claim_ms * 1000 + 60000000 and redis.call('PUBSUB', 'NUMSUB', channel)[2] > 0 then
      counts = string.format('%010d', counts - (how == 'Ls' and 100001 or 100000))
      local nobody = '----------------------------------------------------------------'
      local ends = after and sub(queue, 91) or sub(queue, 91, 106) .. nobody
      local others = sub(counts, 6) ~= '00000' and ' S D ' or after and ' O D ' or ' N D '
      redis.call('HSET', name, 'q', keep .. (after or nobody) .. counts .. ends,
        'r', 'lh1P' .. now .. head .. claim_ms .. now .. who .. sub(waiter, 131))
      redis.call('HDEL', name, e, n)
      redis.pcall('PUBLISH', channel, 'lh1 G ' .. head .. ' ' .. now .. ' ' .. claim_ms .. '000 ' .. now .. others
        .. sub(waiter, 131, 138) .. ' ' .. name)
      return 'RELEASED ' .. now .. ' ' .. now .. others .. claim_ms
    end
  end
end
--@open
-- A lease that is given back is not ended because of its age first: it ends here anyway, and the next waiter is the same.
local ended, word = nil, 'NOTHELD'
if state ~= 'F' and state ~= 'C' and id == who and token == sub(ARGV[1], 5, 20) then
  word = 'RELEASED'
--@spend
elseif state == 'C' and id == who or (state == 'F' and id or sub(rear, 1, 64)) == who then
  word = 'RELEASED'
end
--@settle
if ended and state == 'F' and counts == 0 and ended + 0 > R_MS then
  keep, ttl_changed = string.format('%016.0f', now_us + R_US), true
end
--@save
return word .. said
