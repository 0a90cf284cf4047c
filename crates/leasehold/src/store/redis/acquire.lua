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
--          GRANTED … token range lease | QUEUED … ticket lease now|before | BUSY … lease | GONE … | LATE … |
--          FULL …, where a lease is its begin (µs) and its length (ms), 0 0 if nobody holds
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
--@take
  end
  if (not found or #found == 0) and ARGV[6] and ARGV[6] ~= '' then
--@join
  end
end
local name, asked, lease_ms = KEYS[1], ARGV[1], ARGV[2]
--@open
local queues, is_late, limit, ticket = ARGV[6] and ARGV[6] ~= '', now > ARGV[4], ZEROS,
--&
  sub(ARGV[7] or '', BOUNDS.ticket.from)
if not tonumber(ticket) then ticket = nil end

--@enqueue

if queues and not is_late then
  local patience = tonumber(sub(ARGV[7] or '', BOUNDS.patience))
  if patience then limit = string.format('%016.0f', now_us + patience * 1000) end
end
if queues and not is_late and entry then
--@recheck
end
--@settle
local word, joined
if is_late then
  word = 'LATE'
elseif state ~= 'F' and state ~= 'C' and id == asked then
  word = 'GRANTED'
elseif state == 'C' and id == asked or (state == 'F' and id or sub(rear, REAR.released)) == asked then
  word = 'GONE'
elseif entry then
  word, ticket, joined = 'QUEUED', sub(entry, ENTRY.ticket), ' before'
elseif state == 'F' and counts == 0 then
  -- A lease is free with a queue only after MORE. The queue comes first, and the caller settles again.
  word = 'GRANTED'
  local range = sub(ARGV[3], TAIL.range)
--@mint
  state, rear, id, length, since = 'H', id .. range .. sub(ARGV[3], TAIL.range.behind), asked, lease_ms, now
  keep, ttl_changed = string.format('%016.0f', math.max(now_us + length * 1000, token + range - 1) + R_US), true
elseif not queues then
  word = 'BUSY'
elseif counts >= QUEUE_MAX * 100000 then
  word = 'FULL'
else
--@wait
end
--@save
if word == 'GRANTED' then return word .. said .. ' ' .. token .. ' ' .. sub(rear, REAR.range) .. ' ' .. lease end
if word == 'QUEUED' then return word .. said .. ' ' .. ticket .. ' ' .. lease .. joined end
if word == 'BUSY' then return word .. said .. ' ' .. lease end
return word .. said
