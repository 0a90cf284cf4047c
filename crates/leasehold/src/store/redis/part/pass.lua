-- pass: the short path of a release when the first waiter listens: it becomes the holder. Returns the reply, or sets `got`,
-- the result of HMGET. The long path would do and return the same. This path does not take the record apart, which saves a
-- quarter of the server time of a busy lock.
local sub = string.sub
got = redis.pcall('HMGET', name, 'r', 'q')
local record, queue = got[1], got[2]
local counts = queue and #queue == QUEUE.size and sub(queue, QUEUE.counts)
if record and counts and counts ~= '0000000000' and string.find(record, '^lh1[HPR]')
  and string.find(record, sub(ARGV[1], RECORD.token.from), 1, true) == RECORD.token.from
--&
    and sub(record, RECORD.token) < now
  and (not used or used < now) then
  local head = sub(queue, QUEUE.head)
  local e, n, channel = 'e' .. head, 'n' .. head, ARGV[2] .. sub(head, ID.session)
  local next_two = redis.call('HMGET', name, e, n)
  local waiter, after = next_two[1], next_two[2]
  local claim_ms, how, lease_ms = sub(waiter, ENTRY.claim), sub(waiter, ENTRY.hears.to.order), sub(waiter, ENTRY.lease)
  local keep = sub(queue, QUEUE.keep)
  if lease_ms < claim_ms then claim_ms = lease_ms end
  if sub(waiter, ENTRY.limit) == '0000000000000000' and (how == 'Lr' or how == 'Ls')
    and keep + 0 >= now + claim_ms * 1000 + 60000000 and redis.call('PUBSUB', 'NUMSUB', channel)[2] > 0 then
    counts = string.format('%010d', counts - (how == 'Ls' and 100001 or 100000))
    local nobody = '----------------------------------------------------------------'
    local ends = after and sub(queue, QUEUE.ticket.from) or sub(queue, QUEUE.ticket) .. nobody
    local others = sub(counts, COUNTS.strict.from) ~= '00000' and ' S D ' or after and ' O D ' or ' N D '
    redis.call('HSET', name, 'q', keep .. (after or nobody) .. counts .. ends,
      'r', 'lh1P' .. now .. head .. claim_ms .. now .. who .. sub(waiter, ENTRY.tail))
    redis.call('HDEL', name, e, n)
    redis.pcall('PUBLISH', channel, 'lh1 G ' .. head .. ' ' .. now .. ' ' .. claim_ms .. '000 ' .. now .. others
      .. sub(waiter, ENTRY.range) .. ' ' .. name)
    return 'RELEASED ' .. now .. ' ' .. now .. others .. claim_ms
  end
end
