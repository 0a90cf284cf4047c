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
--          6 c if somebody is thought to wait: then the record is looked for as a hash first. (5 may be empty then.)
-- RETURNS  16 digits: granted just now, this is the token and the server's time, the whole lease is left, nobody waits.
--          GRANTED … token lease | QUEUED … ticket lease | BUSY … lease | GONE … | LATE … | FULL …, where a
--          lease is since when (µs) and for how long (ms), 0 0 if nobody holds
--          FOREIGN type | NEWER version
-- EFFECTS  makes the grant or the entry; settles. Not `allow-oom`: with a full memory it is refused before it begins.
-- RETRY    safe: whose id holds is granted again, whose id waits is queued again, with what is left (P2, P3)
-- COST     TIME, GET, SET. Queued: TIME, HMGET, HSET; the first waiter of a name TIME, GET, DEL, HSET, PEXPIRE. A way
--          back to one's place walks up to 64 entries.
--@clock
local found
if not ARGV[6] and now <= ARGV[3] then
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
local queues = place and place ~= ''
if queues and not is_late then
  local patience = tonumber(sub(place, 9, 24))
  if patience then limit = string.format('%016.0f', now_us + patience * 1000) end
  -- Before settling: a look shows that this waiter lives, so it must not be dropped for an older silence.
  if entry then puts = { ['e' .. asked] = sub(entry, 1, 32) .. limit .. now .. sub(entry, 65) } end
end
--@settle
local word, ticket
if is_late then
  word = 'LATE'
elseif state ~= 'F' and id == asked then
  word = 'GRANTED'
elseif (state == 'F' and id or sub(rear, 1, 64)) == asked then
  word = 'GONE'
elseif entry then
  word, ticket = 'QUEUED', sub(entry, 1, 16)
elseif state == 'F' and counts == 0 then
  -- Only after MORE is a lease free with a queue: the queue comes first, and the caller settles again.
  word = 'GRANTED'
  if now > token then token = now else token = string.format('%016.0f', token + 1) end
  state, rear, id, length, since = 'H', id .. ARGV[2], asked, lease_ms, now
  keep, ttl_changed = string.format('%016.0f', now_us + length * 1000 + R_US), true
elseif not queues then
  word = 'BUSY'
elseif counts >= QUEUE_MAX * 100000 then
  word = 'FULL'
else
  word, ticket = 'QUEUED', sub(place, 25, 40)
  if counts == 0 then
    keep, ttl_changed = string.format('%016.0f', math.max(since + length * 1000, now_us) + R_US), true
  end
  -- Before whom the ticket belongs. Too far from the head to be found by a bounded walk, or without a ticket, it is a
  -- place at the tail with a new one.
  local after, later, is_new = nil, nil, ticket == '----------------'
  if not is_new and counts > 0 and ticket <= tail_ticket then
    local at, looked_at = head, 0
    while at and looked_at < TICKET_STEPS and not after do
      local got = redis.call('HMGET', name, 'e' .. at, 'n' .. at)
      if sub(got[1], 1, 16) > ticket then after, later = at, got[1] end
      at, looked_at = got[2], looked_at + 1
    end
    is_new = not after
  end
  if is_new then
    ticket = now
    if counts > 0 and tail_ticket >= now then ticket = string.format('%016.0f', tail_ticket + 1) end
  end
  puts = puts or {}
  local before = tail
  if after then
    before = after ~= head and sub(later, 67, 130) or NOBODY
    puts['e' .. after], puts['n' .. asked] = sub(later, 1, 66) .. asked .. sub(later, 131), after
  else
    tail, tail_ticket = asked, ticket
  end
  if before == NOBODY then head = asked else puts['n' .. before] = asked end
  counts = counts + (sub(place, 42) == 's' and 100001 or 100000)
  puts['e' .. asked] = ticket .. lease_ms .. sub(place, 1, 8) .. limit .. now .. sub(place, 41) .. before .. ARGV[2]
end
--@save
if word == 'GRANTED' then return word .. said .. ' ' .. token .. ' ' .. lease end
if word == 'QUEUED' then return word .. said .. ' ' .. ticket .. ' ' .. lease end
if word == 'BUSY' then return word .. said .. ' ' .. lease end
return word .. said
