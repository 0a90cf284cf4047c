-- join: the short path of an acquire that has to wait: a new waiter queues behind others while somebody holds. Returns the
-- reply, or sets `got`, the result of HMGET. The long path would do and return the same.
local sub = string.sub
got = redis.pcall('HMGET', KEYS[1], 'r', 'q', 'e' .. ARGV[1])
local record, queue = got[1], got[2]
if record and queue and not got[3] and (ARGV[7] or '') == '' and string.find(record, '^lh1[HPR]')
  and #queue >= QUEUE.size and not string.find(record, ARGV[1], 1, true) then
  local length, since, counts = sub(record, RECORD.length), sub(record, RECORD.since), sub(queue, QUEUE.counts)
  local end_us, is_ahead = since + length * 1000, since > now
  -- If a time is in the future, the clock was set back. The long path corrects such times.
  for at = QUEUE.lapses.time.from, #queue, LAPSE.size do is_ahead = is_ahead or sub(queue, LAPSE.time(at)) > now end
  if end_us > now + 0 and not is_ahead and counts < '1000000000' and sub(queue, QUEUE.ticket) < now then
    local lapses = #queue > QUEUE.size and sub(queue, QUEUE.lapses) or ''
    local is_strict = string.byte(ARGV[6], PLACE.order.from) == 115
    local more = string.format('%010d', counts + (is_strict and 100001 or 100000))
    local entry = '0000000000000000' .. now .. now .. ARGV[6] .. ARGV[2]
    if counts ~= '0000000000' then
      local tail = sub(queue, QUEUE.tail)
      redis.call('HSET', KEYS[1], 'q', sub(queue, QUEUE.keep.to.head) .. more .. now .. ARGV[1] .. lapses,
        'e' .. ARGV[1], entry .. tail .. ARGV[3], 'n' .. tail, ARGV[1])
    else
      local nobody = '----------------------------------------------------------------'
      local keep, token, last_us = sub(queue, QUEUE.keep), sub(record, RECORD.token), end_us
      -- As in part/last.lua.
      if sub(record, RECORD.state) == 'H' and since > token then last_us = last_us + length * 1000 end
      last_us = math.max(last_us, token + sub(record, RECORD.range) - 1)
      local is_short = keep + 0 < last_us + 60000000
      if is_short then keep = string.format('%016.0f', last_us + 60000000) end
      redis.call('HSET', KEYS[1], 'q', keep .. ARGV[1] .. more .. now .. ARGV[1] .. lapses,
        'e' .. ARGV[1], entry .. nobody .. ARGV[3])
      if is_short then redis.call('PEXPIRE', KEYS[1], math.ceil((keep - now) / 1000)) end
    end
    local others = sub(more, COUNTS.strict.from) ~= '00000' and ' S D - ' or ' O D - '
    if counts == '0000000000' or is_strict and sub(counts, COUNTS.strict.from) == '00000' then
      local range = sub(record, RECORD.range)
      if range ~= '00000001' then
        -- The holder of a range may be handing the lease on inside its session (P9).
        redis.pcall('PUBLISH', string.match(KEYS[1], '^[^{]*') .. 'inbox:' .. sub(record, RECORD.id.session),
          'lh1 W ' .. sub(record, RECORD.id) .. ' ' .. sub(record, RECORD.token) .. ' '
--&
            .. string.format('%.0f', end_us - now)
            .. ' ' .. now .. sub(others, 1, 5) .. range .. ' ' .. KEYS[1])
      end
    end
    return 'QUEUED ' .. now .. ' ' .. sub(record, RECORD.token) .. others
--&
      .. now .. ' ' .. since .. ' ' .. length .. ' now'
  end
end
