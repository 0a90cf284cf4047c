#!lua
-- acquire: take the lease, or join the queue for it. Sent again with the same id, it is also how a waiter looks.
--
-- KEYS     1 the record
-- ARGV     1 grant id (64) and lease in ms (8)
--          2 the caller's label
--          3 not_after in µs (16): later than this nothing is done (P4)
--          4 time to live of a fresh grant in ms: lease + R
--          5 place in the queue, absent or empty to be answered BUSY: claim in ms (8), patience in ms (16, dashes: for
--            ever), ticket to come back with (16, dashes: none), L listens or P polls, s strict or r relaxed
--          6 c if somebody is thought to wait: then the record is looked for as a hash first
-- RETURNS  16 digits: granted just now, this is the token and the server's time, the whole lease is left, nobody waits.
--          GRANTED … token lease | QUEUED … ticket lease now|before | BUSY … lease | GONE … | LATE … | FULL …, where a
--          lease is since when (µs) and for how long (ms), 0 0 if nobody holds
--          FOREIGN type | NEWER version
-- EFFECTS  makes the grant or the entry; settles. Not `allow-oom`: with a full memory it is refused before it begins.
-- RETRY    safe: whose id holds is granted again, whose id waits is queued again, with what is left (P2, P3)
-- COST     TIME, GET, SET. A held one TIME, GET, and for its first waiter DEL, HSET, PEXPIRE; one with a queue TIME,
--          HMGET, HSET. A way back to one's place walks up to 64 entries.
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
local name, who = KEYS[1], string.sub(ARGV[1], 1, 64)
local asked = who
--@open
local place, limit = ARGV[5] or '', ZEROS
local is_late, queues = now > ARGV[3], place ~= ''
if queues and not is_late then
  local patience = tonumber(sub(place, 9, 24))
  if patience then limit = string.format('%016.0f', now_us + patience * 1000) end
  -- Before settling: a look shows that this waiter lives, so it must not be dropped for an older silence.
  if entry then puts = { ['e' .. who] = sub(entry, 1, 32) .. limit .. now .. sub(entry, 65) } end
end
--@settle
local word, ticket, joined
if is_late then
  word = 'LATE'
elseif state ~= 'F' and id == who then
  word = 'GRANTED'
elseif (state == 'F' and id or prev) == who then
  word = 'GONE'
elseif entry and not (puts and puts['e' .. who] == false) then
  word, ticket, joined = 'QUEUED', sub(entry, 1, 16), ' before'
elseif state == 'F' and count == 0 then
  -- Only after MORE is a lease free with a queue: the queue comes first, and the caller settles again.
  word = 'GRANTED'
  if now > token then token = now else token = string.format('%016.0f', token + 1) end
  state, prev, id, length, since, label = 'H', id, who, sub(ARGV[1], 65), now, ARGV[2]
  keep, ttl_changed = string.format('%016.0f', now_us + length * 1000 + R_US), true
elseif not queues then
  word = 'BUSY'
elseif count >= QUEUE_MAX then
  word = 'FULL'
else
  word, joined = 'QUEUED', ' now'
  if count == 0 then keep, ttl_changed = string.format('%016.0f', math.max(since + length * 1000, now_us) + R_US), true end
  puts = puts or {}
  ticket = sub(place, 25, 40)
  -- Before which entry a ticket belongs; false for the tail. Too far from the head to be found by a bounded walk, it is a
  -- place at the tail with a new ticket, as for a newcomer.
  local after, later = nil, nil
  if ticket ~= '----------------' then
    after = false
    if count > 0 and ticket <= tail_ticket then
      local at, looked_at = head, 0
      after = nil
      while at and looked_at < TICKET_STEPS do
        looked_at = looked_at + 1
        local found = redis.call('HMGET', name, 'e' .. at, 'n' .. at)
        if sub(found[1], 1, 16) > ticket then
          after, later = at, found[1]
          break
        end
        at = found[2]
      end
    end
  end
  if after == nil then
    after, ticket = false, now
    if count > 0 and tail_ticket >= now then ticket = string.format('%016.0f', tail_ticket + 1) end
  end
  local before = tail
  if after then
    before = after ~= head and sub(later, 67, 130) or NOBODY
    puts['e' .. after], puts['n' .. who] = sub(later, 1, 66) .. who .. sub(later, 131), after
  else
    tail, tail_ticket = who, ticket
  end
  if before == NOBODY then head = who else puts['n' .. before] = who end
  count = count + 1
  if sub(place, 42) == 's' then strict = strict + 1 end
  puts['e' .. who] = ticket .. sub(ARGV[1], 65) .. sub(place, 1, 8) .. limit .. now .. sub(place, 41, 42) .. before .. ARGV[2]
end
--@save
if word == 'GRANTED' then return word .. said .. ' ' .. token .. ' ' .. lease end
if word == 'QUEUED' then return word .. said .. ' ' .. ticket .. ' ' .. lease .. joined end
if word == 'BUSY' then return word .. said .. ' ' .. lease end
return word .. said
