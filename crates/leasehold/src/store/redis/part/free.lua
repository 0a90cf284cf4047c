-- free: the short path of a release when nobody waits. Returns the reply, or sets `found`, the result of GET. The long path
-- would do and return the same.
found = redis.pcall('GET', KEYS[1])
-- An error is a table: its # is 0. A lease that is longer than R has set a longer time to live than a free record needs.
if found and #found > 0 and string.find(found, ARGV[1], 1, true) == 1
--&
  and string.sub(found, RECORD.length) <= '00060000' then
  local used = ARGV[3]
  if not used then
    redis.call('SETRANGE', KEYS[1], 'RECORD.state.offset', 'F')
    return 'RELEASED'
  end
  local more = used - string.sub(found, RECORD.token)
  if more >= 0 and more < string.sub(found, RECORD.range) + 0 then
    redis.call('SETRANGE', KEYS[1], 'RECORD.state.offset', 'F' .. used)
    return 'RELEASED'
  end
end
