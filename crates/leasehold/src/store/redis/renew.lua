#!lua flags=allow-oom
-- renew: lengthen the leases of up to 16 names.
--
-- KEYS     the records
-- ARGV     for each key
--          2i-1 token (16), grant id (64), lease in ms (8), not_after in µs (16), N from now or G from the grant
--          2i   time to live in ms: lease + R
-- RETURNS  one answer for each key, in order, separated by newlines:
--          RENEWED … since length | LOST … revoked | LOST … notheld | LATE …
--          FOREIGN type | NEWER version | ERROR text: one name's trouble is its own (P8)
-- EFFECTS  the grants' leases; settles each name
-- RETRY    safe: a lease from now is made long again, one from the grant ends when it did
-- COST     TIME; for each name GET, SET; with a queue HMGET, HSET, PEXPIRE more
--@clock
local answers, others, texts = {}, {}, {}
for i, name in ipairs(KEYS) do
  local want = ARGV[2 * i - 1]
  local found = redis.pcall('GET', name)
  local begin = found and #found > 0 and string.sub(found, 1, 4)
  if (begin == 'lh1H' or begin == 'lh1P') and string.sub(found, 5, 84) == string.sub(want, 1, 80)
    and string.sub(want, 105) == 'N' and now <= string.sub(want, 89, 104) and string.sub(found, 5, 20) <= now
    and string.sub(found, 93, 108) + string.sub(found, 85, 92) * 1000 > now + 0
    -- The time to live of a lease is also that of a range that has been used, or was never made longer.
    and (string.sub(found, 173, 180) <= '00001024'
      or string.sub(found, 5, 20) + string.sub(found, 173, 180) <= now + 0) then
    local lease = string.sub(want, 81, 88)
    local text = 'lh1H' .. string.sub(want, 1, 88) .. now .. string.sub(found, 109)
    redis.call('SET', name, text, 'PX', ARGV[2 * i])
    answers[i] = 'RENEWED ' .. now .. ' ' .. string.sub(want, 1, 16) .. ' N D - ' .. now .. ' ' .. lease
  else
    answers[i], others[#others + 1], texts[i] = '', i, found
  end
end
if #others == 0 then return table.concat(answers, '\n') end
local function renew(name, found, want)
  local asked, got
--@open
--@settle
  local word = 'RENEWED'
  if now > sub(want, 89, 104) then
    word = 'LATE'
  elseif state == 'F' or token .. id ~= sub(want, 1, 80) then
    word = 'LOST notheld'
  elseif state == 'R' then
    word = 'LOST revoked'
  else
    if sub(want, 105) == 'N' then
      since, length = now, sub(want, 81, 88)
    elseif state == 'P' and length < sub(want, 81, 88) then
      length = sub(want, 81, 88)
    end
    local last_us = math.max(since + length * 1000, token + sub(rear, 65, 72) - 1)
    state, keep, ttl_changed = 'H', string.format('%016.0f', last_us + R_US), true
  end
--@save
  if word == 'RENEWED' then return word .. said .. ' ' .. lease end
  if word == 'LATE' then return word .. said end
  return 'LOST' .. said .. string.sub(word, 5)
end

for _, i in ipairs(others) do
  local done, answer = pcall(renew, KEYS[i], texts[i], ARGV[2 * i - 1])
  if not done or type(answer) == 'table' then answer = 'ERROR ' .. (type(answer) == 'table' and answer.err or answer) end
  answers[i] = string.gsub(answer, '\n', ' ')
end
return table.concat(answers, '\n')
