-- fetch: reads the stored texts: `text`, the record; and of a hash also `queue` and `entry`. Returns a refusal if the
-- key has something that is not ours.
--
-- An error is a table: its # is 0.
if got or text == nil or text and #text == 0 then
  if not got and asked then
    got = redis.pcall('HMGET', name, 'r', 'q', 'e' .. asked)
  elseif not got then
    got = redis.pcall('HMGET', name, 'r', 'q')
  end
  if not got.err then
    text, queue, entry, is_hash = got[1], got[2], got[3], true
    if not text and redis.call('EXISTS', name) == 1 then return 'FOREIGN hash' end
  elseif sub(got.err, 1, 9) ~= 'WRONGTYPE' then
    return got
  else
    text = redis.pcall('GET', name)
    if text and #text == 0 then
      return text.err and sub(text.err, 1, 9) ~= 'WRONGTYPE' and text or 'FOREIGN ' .. redis.call('TYPE', name).ok
    end
  end
end
