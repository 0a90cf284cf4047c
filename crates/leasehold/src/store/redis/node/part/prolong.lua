-- prolong: the short path of a renewal of one name: the vote is held, and nobody waits. Adds the reply to `answers`, or
-- adds the name to `rest`, which takes the long path.
local name, want = KEYS[i], ARGV[3 + i]
local found = redis.pcall('GET', name)
-- An error is a table: its # is 0.
if found and #found > VOTED.short and is_early and sub(found, NODE.version.to.called) == 'lq1HN-'
--&
  and sub(want, WANT.start) == 'H'
  and sub(found, VOTED.id.to.token) == sub(want, WANT.id.to.token)
--&
    and sub(found, VOTED.since) + sub(found, VOTED.length) * 1000 > now + 0 then
  if sub(want, WANT.lease) ~= length then
    length = sub(want, WANT.lease)
    keep = string.format('%016.0f', now + length * 1000 + 60000000)
  end
  local since = sub(found, VOTED.released.to.token) .. now .. length .. sub(found, VOTED.tail)
  if keep > sub(found, NODE.keep) then
    redis.call('SET', name, sub(found, NODE.version.to.highest) .. keep .. since, 'PX', length + 60000)
  else
    redis.call('SET', name, sub(found, NODE.version.to.keep) .. since, 'KEEPTTL')
  end
  answers[i] = 'R' .. now .. sub(found, NODE.highest)
else
  answers[i], rest[#rest + 1], texts[i] = '', i, found
end
