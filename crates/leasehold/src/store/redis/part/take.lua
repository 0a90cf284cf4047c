-- take: the short path of an acquire when the lease is free and nobody waits. Returns the reply, or sets `found`, the
-- result of GET. The long path would do and return the same.
found = redis.pcall('GET', KEYS[1])
if not found then
  local nobody = '----------------------------------------------------------------'
  local record = 'lh1H' .. now .. ARGV[1] .. ARGV[2] .. now .. nobody .. ARGV[3]
  redis.call('SET', KEYS[1], record, 'PX', ARGV[5])
  return now
end
-- An error is a table: its # is 0.
if #found > RECORD.short and string.sub(found, RECORD.version.to.state) == 'lh1F'
--&
  and string.sub(found, RECORD.token) < now then
  local last = string.sub(found, RECORD.id)
  if last ~= ARGV[1] then
    redis.call('SET', KEYS[1], 'lh1H' .. now .. ARGV[1] .. ARGV[2] .. now .. last .. ARGV[3], 'PX', ARGV[5])
    return now
  end
end
