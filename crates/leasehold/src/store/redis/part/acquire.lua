-- acquire: the long path of an acquire, in full. Takes KEYS and ARGV of `acquire`, `now`, and `found` or `got` of a short
-- path. Returns the reply.
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
