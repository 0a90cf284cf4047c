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
--          GRANTED … token left | QUEUED … ticket left now|before | BUSY … left | GONE … | LATE … | FULL …, after `finish`
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
--@record
local who, lease, place = sub(ARGV[1], 1, 64), sub(ARGV[1], 65), ARGV[5] or ''
local queues = place ~= ''

local function time_limit()
  local patience = number(sub(place, 9, 24))
  return patience and digits(now_us + patience * 1000) or ZEROS
end

-- Where a ticket belongs: before which entry, false for the tail. Too far from the head to be found by a bounded walk,
-- it is nil: a place at the tail with a new ticket, as for a newcomer.
local function spot(ticket)
  if count == 0 or ticket > tail_ticket then return false end
  local at = head
  for _ = 1, TICKET_STEPS do
    local text, next_one = entry(at)
    if sub(text, 1, 16) > ticket then return at end
    if not next_one then return nil end
    at = next_one
  end
  return nil
end

local function enqueue()
  if count == 0 then keep_until(math.max(end_us(), now_us) + R_US) end
  local ticket, next_one = sub(place, 25, 40), nil
  if ticket ~= '----------------' then next_one = spot(ticket) end
  if next_one == nil then
    ticket, next_one = now, false
    if count > 0 and tail_ticket >= now then ticket = digits(number(tail_ticket) + 1) end
  end
  local before = NOBODY
  if not next_one then
    if count > 0 then
      before = tail
      link(tail, who)
    end
    tail, tail_ticket = who, ticket
  else
    local neighbour = entry(next_one)
    if next_one ~= head then
      before = sub(neighbour, 67, 130)
      link(before, who)
    end
    put(next_one, sub(neighbour, 1, 66) .. who .. sub(neighbour, 131))
    link(who, next_one)
  end
  if before == NOBODY then head = who end
  count = count + 1
  if sub(place, 42, 42) == 's' then strict = strict + 1 end
  put(who, ticket .. lease .. sub(place, 1, 8) .. time_limit() .. now .. sub(place, 41, 42) .. before .. ARGV[2])
  return ticket
end

local refusal = open(KEYS[1], found, who)
if refusal then return refusal end
if now > ARGV[3] then
  settle()
  return finish('LATE')
end
-- Before settling: a look shows that this waiter lives, so it must not be dropped for an older silence.
local waiting = entries[who]
if queues and waiting then
  local ticket = sub(place, 25, 40)
  if ticket ~= '----------------' and ticket < sub(waiting, 1, 16) and spot(ticket) then
    -- It was passed over, and a copy of its first request, which knew no ticket yet, put it at the tail (P6).
    unlink(who)
    enqueue()
  else
    put(who, sub(waiting, 1, 32) .. time_limit() .. now .. sub(waiting, 65))
  end
end
settle()
if state ~= 'F' and id == who then return finish('GRANTED', token .. ' ' .. left()) end
if released() == who then return finish('GONE') end
if entries[who] then return finish('QUEUED', sub(entries[who], 1, 16) .. ' ' .. left() .. ' before') end
-- Only after MORE is a lease free with a queue: the queue comes first, and the caller settles again.
if state == 'F' and count == 0 then
  grant(who, 'H', lease, ARGV[2])
  keep_until(now_us + number(lease) * 1000 + R_US)
  return finish('GRANTED', token .. ' ' .. left())
end
if not queues then return finish('BUSY', left()) end
if count >= QUEUE_MAX then return finish('FULL') end
local ticket = enqueue()
return finish('QUEUED', ticket .. ' ' .. left() .. ' now')
