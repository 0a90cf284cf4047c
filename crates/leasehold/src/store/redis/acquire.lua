#!lua
-- acquire: take the lease, or join the queue for it. Sent again with the same id, it is also how a waiter looks.
--
-- KEYS     1 the record
-- ARGV     1 grant id (64) and lease in ms (8)
--          2 bytes of the caller's label (3), and the label
--          3 not_after in µs (16): later than this nothing is done (P4)
--          4 time to live of a fresh grant in ms: lease + R
--          5 place in the queue; absent, the answer is BUSY: claim in ms (8), patience in ms (16, dashes: for ever), ticket
--            to come back with (16, dashes: none), L listens or P polls, s strict or r relaxed
-- RETURNS  16 digits: granted just now, this is the token and the server's time, the whole lease is left, nobody waits.
--          GRANTED … token lease | QUEUED … ticket lease | BUSY … lease | GONE … | LATE … | FULL …, where a
--          lease is since when (µs) and for how long (ms), 0 0 if nobody holds
--          FOREIGN type | NEWER version
-- EFFECTS  makes the grant or the entry; settles. Not `allow-oom`: with a full memory it is refused before it begins.
-- RETRY    safe: whose id holds is granted again, whose id waits is queued again, with what is left (P2, P3)
-- COST     TIME, GET, SET. With more than 64 waiters TIME, GET, HMGET, HSET; a way back to one's place walks up to 64 of
--          them. The one who makes them 65 moves all into a hash.
--@clock
local found
if now <= ARGV[3] then
  found = redis.pcall('GET', KEYS[1])
  if not found then
    local nobody = '----------------------------------------------------------------'
    redis.call('SET', KEYS[1], 'lh1H' .. now .. ARGV[1] .. now .. nobody .. ARGV[2], 'PX', ARGV[4])
    return now
  end
  -- An error has no length.
  if #found > 0 and string.sub(found, 1, 4) == 'lh1F' and string.sub(found, 5, 20) < now then
    local last = string.sub(found, 21, 84)
    if not string.find(ARGV[1], last, 1, true) then
      redis.call('SET', KEYS[1], 'lh1H' .. now .. ARGV[1] .. now .. last .. ARGV[2], 'PX', ARGV[4])
      return now
    end
  end
end
local name, asked, lease_ms = KEYS[1], string.sub(ARGV[1], 1, 64), string.sub(ARGV[1], 65)
--@open
local place, limit, is_late = ARGV[5], ZEROS, now > ARGV[3]
if place and not is_late then
  local patience = tonumber(sub(place, 9, 24))
  if patience then limit = string.format('%016.0f', now_us + patience * 1000) end
  -- Before settling: a look shows that this waiter lives, so it must not be dropped for an older silence.
  if at_entry then
    queue = sub(queue, 1, at_entry + 95) .. limit .. now .. sub(queue, at_entry + 128)
  elseif entry then
    puts = { ['e' .. asked] = sub(entry, 1, 32) .. limit .. now .. sub(entry, 65) }
  end
end
--@settle
local word, ticket
if is_late then
  word = 'LATE'
elseif state ~= 'F' and id == asked then
  word = 'GRANTED'
elseif (state == 'F' and id or prev) == asked then
  word = 'GONE'
elseif entry then
  word, ticket = 'QUEUED', sub(entry, 1, 16)
elseif state == 'F' and count == 0 then
  -- Only after MORE is a lease free with a queue: the queue comes first, and the caller settles again.
  word = 'GRANTED'
  if now > token then token = now else token = string.format('%016.0f', token + 1) end
  state, prev, id, length, since, label = 'H', id, asked, lease_ms, now, sub(ARGV[2], 4)
  keep, ttl_changed = string.format('%016.0f', now_us + length * 1000 + R_US), true
elseif not place then
  word = 'BUSY'
elseif count >= QUEUE_MAX then
  word = 'FULL'
else
  word, ticket = 'QUEUED', sub(place, 25, 40)
  if count == 0 then
    keep, ttl_changed = string.format('%016.0f', math.max(since + length * 1000, now_us) + R_US), true
    queue, head, tail = '', NOBODY, NOBODY
  end
  -- Before whom the ticket belongs; nil for the tail. Too far from the head to be found by a bounded walk, it is a place
  -- at the tail with a new ticket, as for a newcomer.
  local before, after, later = tail, nil, nil
  local is_new = sub(ticket, 1, 1) == '-'
  if not is_new and count > 0 and ticket <= tail_ticket then
    local at, looked_at = queue and 1 or head, 0
    while at and looked_at < TICKET_STEPS and not after do
      local waiter, next_one
      if queue then
        waiter, next_one = sub(queue, at + 64, at + 79), at + 133 + sub(queue, at + 130, at + 132)
        if next_one > #queue then next_one = nil end
      else
        local got = redis.call('HMGET', name, 'e' .. at, 'n' .. at)
        waiter, next_one = got[1], got[2]
      end
      if sub(waiter, 1, 16) > ticket then after, later = at, waiter end
      at, looked_at = next_one, looked_at + 1
    end
    is_new = not after
  end
  if is_new then
    ticket = now
    if count > 0 and tail_ticket >= now then ticket = string.format('%016.0f', tail_ticket + 1) end
  end
  if not after then tail_ticket = ticket end
  if sub(place, 42) == 's' then strict = strict + 1 end
  count = count + 1
  local waiter = ticket .. lease_ms .. sub(place, 1, 8) .. limit .. now .. sub(place, 41, 42) .. ARGV[2]
  if queue and after then
    queue = sub(queue, 1, after - 1) .. asked .. waiter .. sub(queue, after)
  elseif queue then
    queue = queue .. asked .. waiter
  else
    puts = puts or {}
    if after then
      before = after ~= head and sub(later, -64) or NOBODY
      puts['e' .. after], puts['n' .. asked] = sub(later, 1, -65) .. asked, after
    else
      tail = asked
    end
    if before == NOBODY then head = asked else puts['n' .. before] = asked end
    puts['e' .. asked] = waiter .. before
  end
  if queue and count > INLINE_MAX then
    -- Too many to be read and written whole.
    local at = 1
    puts, tail, ttl_changed = {}, NOBODY, true
    while at <= #queue do
      local who, behind = sub(queue, at, at + 63), at + 133 + sub(queue, at + 130, at + 132)
      puts['e' .. who] = sub(queue, at + 64, behind - 1) .. tail
      if tail == NOBODY then head = who else puts['n' .. tail] = who end
      at, tail = behind, who
    end
    queue = nil
  end
end
--@save
if word == 'GRANTED' then return word .. said .. ' ' .. token .. ' ' .. lease end
if word == 'QUEUED' then return word .. said .. ' ' .. ticket .. ' ' .. lease end
if word == 'BUSY' then return word .. said .. ' ' .. lease end
return word .. said
