#!lua
-- pool/acquire: takes units of a pool, or a place in its queue. A waiter sends it again, with the same ID, to re-check.
--
-- KEYS     1 the record
-- ARGV     1 grant id (64)
--          2 lease in ms (8)
--          3 lh1, kind (W, S, V, L or B) and limit (6): how the record begins. Kind M: a mutex met the pool, and is refused
--          4 mode (P plain, U upgradeable, I in the place of another grant) and units (6)
--          5 label
--          6 not_after in µs (16): after this time nothing is done (P4)
--          7 for a place in the queue: claim in ms (8), L listens or P polls, s strict or r relaxed; absent or empty: BUSY
--          8 longest wait in ms (16, dashes: for ever), ticket of an earlier place (16, dashes: none); absent or empty:
--            neither
--          9 for an upgrade: the grant that it replaces, grant id (64) and token (16)
-- RETURNS  16 digits: granted now. This is the token and the server's time. The whole lease is left, nobody waits.
--          GRANTED … token 00000001 lease | QUEUED … ticket lease now|before | BUSY … lease | GONE … | LATE … | FULL … |
--          REFUSED … other|many|grant|absent kind limit, where a lease is its begin (µs) and its length (ms). For a waiter
--          it is the time until the first lease ends, at the earliest; 0 0 if nobody holds
--          OTHER | FOREIGN type | NEWER version
-- EFFECTS  makes the grant or the entry; settles. Not `allow-oom`: if the memory is full, the server refuses the script
--          before it begins.
-- RETRY    safe: an ID that holds is granted again, an ID that waits is queued again, with the time that is left (P2, P3)
-- COST     TIME, HMGET, HSET; EXISTS, PEXPIRE for a new name, and PEXPIRE once in the length of a lease. Queued: TIME,
--          HMGET, HMGET, PUBSUB NUMSUB, HSET.
--@clock
local share, place = ARGV[4], ARGV[7] or ''
if now <= ARGV[6] and not ARGV[9] and not string.find(ARGV[3], 'B') then
--@take
end
--@pool
--@enqueue
--@refuse
--@arrive
local asked, queues, limit, ticket = ARGV[1], place ~= '', ZEROS, nil
local pool = open(KEYS[1], asked)
if not pool.puts then return pool end
if not pool.record and sub(ARGV[3], POOL.kind) == 'M' then return 'OTHER' end
if now > ARGV[6] then
  settle(pool)
  return 'LATE' .. save(pool)
end
if queues then
  local patience = tonumber(sub(ARGV[8] or '', BOUNDS.patience))
  if patience then limit = format('%016.0f', now_us + patience * 1000) end
  ticket = sub(ARGV[8] or '', BOUNDS.ticket.from)
  local known = pool.entry and sub(pool.entry, WAITER.ticket)
  if not tonumber(ticket) or known and pool.kind == 'V' and ticket < known then ticket = known end
  note_seen(pool, asked, limit, ticket)
end
settle(pool)
local _, own = find_grant(pool, asked)
if own and sub(own, GRANT.state) ~= 'C' then return granted(pool, own) end
if own or pool.released == asked then return 'GONE' .. save(pool) end
if pool.entry then
  return 'QUEUED' .. save(pool) .. ' ' .. sub(pool.entry, WAITER.ticket) .. first_left(pool) .. ' before'
end
if sub(ARGV[3], POOL.kind) == 'B' and tonumber(ticket) then return dismissed(pool, ticket) end
if ARGV[9] then
--@upgrade
end
local refused = refusal(pool, ARGV[3], share)
if refused then return 'REFUSED' .. save(pool) .. refused end
if fits(pool, share) and (pool.counts == 0 or is_before_head(pool, ticket)) then
  local token = add(pool, asked, 'H', share, ARGV[2], ARGV[5])
  keep_for(pool, now_us + ARGV[2] * 1000, token, ARGV[2])
  return 'GRANTED' .. save(pool) .. ' ' .. token .. ' 00000001 ' .. now .. ' ' .. ARGV[2]
end
if not queues then return 'BUSY' .. save(pool) .. first_left(pool) end
if pool.counts >= QUEUE_MAX * 100000 then return 'FULL' .. save(pool) end
if pool.counts == 0 then pool.keep = math.max(pool.keep, now_us + R_US) end
-- A name that a waiter begins, and not a grant. The token shows that it has a record.
if pool.last == ZEROS then pool.last = now end
ticket = enqueue(pool, asked, ticket, limit .. now, place .. ARGV[2], share .. ARGV[5])
if pool.kind == 'B' then return arrived(pool, asked, ticket) end
return 'QUEUED' .. save(pool) .. ' ' .. ticket .. first_left(pool) .. ' now'
