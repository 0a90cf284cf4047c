#!lua
-- acquire: takes the lease, or a place in the queue. A waiter sends it again, with the same ID, to re-check.
--
-- KEYS     1 the record
-- ARGV     1 grant id (64)
--          2 lease in ms (8)
--          3 number of tokens to reserve (8, P19), bytes of the caller's label (3), and the label
--          4 not_after in µs (16): after this time nothing is done (P4)
--          5 time to live of a fresh grant in ms: lease + R
--          6 for a place in the queue: claim in ms (8), L listens or P polls, s strict or r relaxed; absent or empty: BUSY
--          7 longest wait in ms (16, dashes: for ever), ticket of an earlier place (16, dashes: none); absent or empty:
--            neither
--          8 c if the client believes that somebody waits: then the record is read as a hash first
-- RETURNS  16 digits: granted now. This is the token and the server's time. The whole lease is left, all requested tokens
--          are reserved, nobody waits.
--          GRANTED … token range lease | QUEUED … ticket lease now|before | BUSY … lease | GONE … | LATE … | FULL …,
--          where a lease is its begin (µs) and its length (ms), 0 0 if nobody holds
--          FOREIGN type | NEWER version
-- EFFECTS  makes the grant or the entry; settles; notifies the holder of a range when somebody begins to wait (P9). Not
--          `allow-oom`: if the memory is full, the server refuses the script before it begins.
-- RETRY    safe: an ID that holds is granted again, an ID that waits is queued again, with the time that is left (P2, P3)
-- COST     TIME, GET, SET. Queued: TIME, HMGET, HSET; the first waiter of a name TIME, GET, DEL, HSET, PEXPIRE.
--          PUBLISH to the holder of a range. A waiter that comes back to its place costs a walk of up to 64 entries.
--@clock
local found, got
if now <= ARGV[4] then
  if not ARGV[8] then
    found = redis.pcall('GET', KEYS[1])
    if not found then
      local nobody = '----------------------------------------------------------------'
      local record = 'lh1H' .. now .. ARGV[1] .. ARGV[2] .. now .. nobody .. ARGV[3]
      redis.call('SET', KEYS[1], record, 'PX', ARGV[5])
      return now
    end
    -- An error has no length.
    if #found > 0 and string.sub(found, 1, 4) == 'lh1F' and string.sub(found, 5, 20) < now then
      local last = string.sub(found, 21, 84)
      if last ~= ARGV[1] then
        redis.call('SET', KEYS[1], 'lh1H' .. now .. ARGV[1] .. ARGV[2] .. now .. last .. ARGV[3], 'PX', ARGV[5])
        return now
      end
    end
  end
  if (not found or #found == 0) and ARGV[6] and ARGV[6] ~= '' then
    -- The usual case with a queue: a new waiter behind others, while somebody holds. It is a short path, as in release.lua.
    local sub = string.sub
    got = redis.pcall('HMGET', KEYS[1], 'r', 'q', 'e' .. ARGV[1])
    local record, queue = got[1], got[2]
    if record and queue and not got[3] and (ARGV[7] or '') == '' and string.find(record, '^lh1[HPR]')
      and #queue >= 170 and not string.find(record, ARGV[1], 1, true) then
      local length, since, counts = sub(record, 85, 92), sub(record, 93, 108), sub(queue, 81, 90)
      local end_us, is_ahead = since + length * 1000, since > now
      -- Times in the future, of a clock that was set back, are corrected below.
      for at = 203, #queue, 48 do is_ahead = is_ahead or sub(queue, at, at + 15) > now end
      if end_us > now + 0 and not is_ahead and counts < '1000000000' and sub(queue, 91, 106) < now then
        local lapses = #queue > 170 and sub(queue, 171) or ''
        local is_strict = string.byte(ARGV[6], 10) == 115
        local more = string.format('%010d', counts + (is_strict and 100001 or 100000))
        local entry = '0000000000000000' .. now .. now .. ARGV[6] .. ARGV[2]
        if counts ~= '0000000000' then
          local tail = sub(queue, 107, 170)
          redis.call('HSET', KEYS[1], 'q', sub(queue, 1, 80) .. more .. now .. ARGV[1] .. lapses,
            'e' .. ARGV[1], entry .. tail .. ARGV[3], 'n' .. tail, ARGV[1])
        else
          local nobody = '----------------------------------------------------------------'
          local keep, token, last_us = sub(queue, 1, 16), sub(record, 5, 20), end_us
          -- As in part/last.lua.
          if sub(record, 4, 4) == 'H' and since > token then last_us = last_us + length * 1000 end
          last_us = math.max(last_us, token + sub(record, 173, 180) - 1)
          local is_short = keep + 0 < last_us + 60000000
          if is_short then keep = string.format('%016.0f', last_us + 60000000) end
          redis.call('HSET', KEYS[1], 'q', keep .. ARGV[1] .. more .. now .. ARGV[1] .. lapses,
            'e' .. ARGV[1], entry .. nobody .. ARGV[3])
          if is_short then redis.call('PEXPIRE', KEYS[1], math.ceil((keep - now) / 1000)) end
        end
        local others = sub(more, 6) ~= '00000' and ' S D - ' or ' O D - '
        if counts == '0000000000' or is_strict and sub(counts, 6) == '00000' then
          local range = sub(record, 173, 180)
          if range ~= '00000001' then
            -- The holder of a range may be handing the lease on inside its session (P9).
            redis.pcall('PUBLISH', string.match(KEYS[1], '^[^{]*') .. 'inbox:' .. sub(record, 21, 52),
              'lh1 W ' .. sub(record, 21, 84) .. ' ' .. sub(record, 5, 20) .. ' ' .. string.format('%.0f', end_us - now)
                .. ' ' .. now .. sub(others, 1, 5) .. range .. ' ' .. KEYS[1])
          end
        end
        return 'QUEUED ' .. now .. ' ' .. sub(record, 5, 20) .. others .. now .. ' ' .. since .. ' ' .. length .. ' now'
      end
    end
  end
end
local name, asked, lease_ms = KEYS[1], ARGV[1], ARGV[2]
--@open
local queues, is_late, limit, ticket = ARGV[6] and ARGV[6] ~= '', now > ARGV[4], ZEROS, sub(ARGV[7] or '', 17)
if not tonumber(ticket) then ticket = nil end

-- Returns the first entry with a later ticket, if a bounded walk from the head finds it.
local function later_than(ticket)
  local at, looked_at = head, 0
  while at and looked_at < TICKET_STEPS do
    local got = redis.call('HMGET', name, 'e' .. at, 'n' .. at)
    if sub(got[1], 33, 48) > ticket then return at, got[1] end
    at, looked_at = got[2], looked_at + 1
  end
end

-- Puts the entry before the given one, whose text is `later`; without a given one, at the tail.
local function enqueue(after, later, wants, label)
  local before = tail
  puts = puts or {}
  if after then
    before = after ~= head and sub(later, 67, 130) or NOBODY
    puts['e' .. after], puts['n' .. asked] = sub(later, 1, 66) .. asked .. sub(later, 131), after
  else
    tail, tail_ticket = asked, ticket
  end
  if before == NOBODY then head = asked else puts['n' .. before] = asked end
  counts = counts + (sub(wants, 10, 10) == 's' and 100001 or 100000)
  entry = limit .. now .. ticket .. wants .. before .. label
  puts['e' .. asked] = entry
end

if queues and not is_late then
  local patience = tonumber(sub(ARGV[7] or '', 1, 16))
  if patience then limit = string.format('%016.0f', now_us + patience * 1000) end
end
if queues and not is_late and entry then
  -- Before settling: the re-check shows that this waiter lives, so an older silence must not drop it.
  local after, later
  if ticket and ticket < sub(entry, 33, 48) then after, later = later_than(ticket) end
  if after and after ~= asked then
    -- It was passed over. Then a copy of its first request, which had no ticket yet, put it at the tail (P6).
--@unlink
    enqueue(after, later, sub(entry, 49, 66), sub(entry, 131))
  else
    entry = limit .. now .. (after and ticket or sub(entry, 33, 48)) .. sub(entry, 49)
    puts = { ['e' .. asked] = entry }
    if tail == asked then tail_ticket = sub(entry, 33, 48) end
  end
end
--@settle
local word, joined
if is_late then
  word = 'LATE'
elseif state ~= 'F' and state ~= 'C' and id == asked then
  word = 'GRANTED'
elseif state == 'C' and id == asked or (state == 'F' and id or sub(rear, 1, 64)) == asked then
  word = 'GONE'
elseif entry then
  word, ticket, joined = 'QUEUED', sub(entry, 33, 48), ' before'
elseif state == 'F' and counts == 0 then
  -- A lease is free with a queue only after MORE. The queue comes first, and the caller settles again.
  word = 'GRANTED'
  local range = sub(ARGV[3], 1, 8)
--@mint
  state, rear, id, length, since = 'H', id .. range .. sub(ARGV[3], 9), asked, lease_ms, now
  keep, ttl_changed = string.format('%016.0f', math.max(now_us + length * 1000, token + range - 1) + R_US), true
elseif not queues then
  word = 'BUSY'
elseif counts >= QUEUE_MAX * 100000 then
  word = 'FULL'
else
  word, joined = 'QUEUED', ' now'
  if counts == 0 then
--@last
    last_us = math.max(last_us, now_us)
    if not keep or keep + 0 < last_us + R_US then
      keep, ttl_changed = string.format('%016.0f', last_us + R_US), true
    end
  end
  local after, later
  if ticket and counts > 0 and ticket <= tail_ticket then
    after, later = later_than(ticket)
    if not after then ticket = nil end
  end
  -- Too far from the head: it gets a place at the tail and a new ticket, like a new waiter.
  if not ticket then ticket = counts > 0 and tail_ticket >= now and string.format('%016.0f', tail_ticket + 1) or now end
  local before, range = counts, sub(rear, 65, 72)
  enqueue(after, later, ARGV[6] .. lease_ms, ARGV[3])
  local is_strict = counts % 100000 > 0
  if state ~= 'F' and range ~= '00000001' and (before == 0 or is_strict and before % 100000 == 0) then
    told = told or {}
    told[#told + 1] = inboxes .. sub(id, 1, 32)
    local left_us = string.format('%.0f', since + length * 1000 - now_us)
    told[#told + 1] = 'lh1 W ' .. id .. ' ' .. token .. ' ' .. left_us .. ' ' .. now .. (is_strict and ' S D ' or ' O D ')
      .. range .. ' ' .. name
  end
end
--@save
if word == 'GRANTED' then return word .. said .. ' ' .. token .. ' ' .. sub(rear, 65, 72) .. ' ' .. lease end
if word == 'QUEUED' then return word .. said .. ' ' .. ticket .. ' ' .. lease .. joined end
if word == 'BUSY' then return word .. said .. ' ' .. lease end
return word .. said
