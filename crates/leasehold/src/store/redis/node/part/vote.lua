-- vote: the short path of a request for a vote that is free, when nobody waits, or in the pause of a run. Returns the reply
-- if the vote is given. The long path would do and return the same.
local sub, format = string.sub, string.format
local range, last, keep = sub(ARGV[5], TAIL.range), ARGV[7], nil
if range == '00000001' or ahead_us + range <= 1000000 then
  local rear = ARGV[2] .. ARGV[3] .. now .. ARGV[4] .. ARGV[5]
  if not found then
    keep = format('%016.0f', now + ARGV[4] * 1000 + 60000000)
    local nobody = '----------------------------------------------------------------'
    redis.call('SET', KEYS[1], 'lq1HN-' .. last .. keep .. nobody .. rear, 'PX', ARGV[4] + 60000)
    return 'G' .. now
  end
  -- An error is a table: its # is 0.
  if #found == NODE.size and sub(found, NODE.highest) < ARGV[3] then
    local start, kept = sub(found, NODE.version.to.called), sub(found, NODE.keep)
    local until_us = now + ARGV[4] * 1000 + 60000000
    if start == 'lq1FO-' and kept - until_us >= 0 then
      local name = KEYS[1]
--@queue
      -- If the attempt has an entry in this queue, the long path must remove the entry.
      local scores = redis.call('ZMSCORE', queue, ARGV[2] .. 's', ARGV[2] .. 'r')
      if not scores[1] and not scores[2] then
        redis.call('SET', KEYS[1], 'lq1HO-' .. last .. sub(found, NODE.keep.from) .. rear, 'KEEPTTL')
        return 'GRANTED ' .. now .. ' ' .. last .. ' O - ' .. ARGV[3] .. ' ' .. range .. ' ' .. now .. ' ' .. ARGV[4]
      end
    elseif start == 'lq1FN-' then
      -- Mostly it is kept for long enough. Writing a new end and a new time to live would be a quarter of the cost of
      -- this script.
      if kept - until_us >= 0 then
        redis.call('SET', KEYS[1], 'lq1HN-' .. last .. sub(found, NODE.keep.from) .. rear, 'KEEPTTL')
        return 'G' .. now
      elseif kept > now then
        keep = format('%016.0f', now + ARGV[4] * 1000 + 61000000)
        redis.call('SET', KEYS[1], 'lq1HN-' .. last .. keep .. sub(found, NODE.released.from)
--&
          .. rear, 'PX', ARGV[4] + 61000)
        return 'G' .. now
      end
    end
  end
end
