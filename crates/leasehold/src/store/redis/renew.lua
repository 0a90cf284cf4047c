#!lua flags=allow-oom
-- renew: lengthen the leases of up to 16 names.
--
-- KEYS     the records
-- ARGV     for each key
--          2i-1 token (16), grant id (64), lease in ms (8), not_after in µs (16), N from now or G from the grant
--          2i   time to live in ms: lease + R
-- RETURNS  one answer for each key, in order, separated by newlines:
--          RENEWED … left | LOST … revoked | LOST … notheld | LATE …, after `finish`
--          FOREIGN type | NEWER version | ERROR text: one name's trouble is its own (P8)
-- EFFECTS  the grants' leases; settles each name
-- RETRY    safe: a lease from now is made long again, one from the grant ends when it did
-- COST     TIME; for each name GET, SET; with a queue HMGET, HSET, PEXPIRE more
--@clock
local answers, others, texts = {}, {}, {}
for i, name in ipairs(KEYS) do
  local want = ARGV[2 * i - 1]
  local found = redis.pcall('GET', name)
  if not found or #found == 0 then found = '' end
  local begin = string.sub(found, 1, 4)
  if (begin == 'lh1H' or begin == 'lh1P') and string.sub(found, 5, 84) == string.sub(want, 1, 80)
    and string.sub(want, 105) == 'N' and now <= string.sub(want, 89, 104) and string.sub(found, 5, 20) <= now
    and string.sub(found, 93, 108) + string.sub(found, 85, 92) * 1000 > now + 0 then
    local lease = string.sub(want, 81, 88)
    local text = 'lh1H' .. string.sub(want, 1, 88) .. now .. string.sub(found, 109)
    redis.call('SET', name, text, 'PX', ARGV[2 * i])
    answers[i] = 'RENEWED ' .. now .. ' ' .. string.sub(want, 1, 16) .. ' N D - ' .. lease .. '000'
  else
    answers[i], others[#others + 1], texts[i] = '', i, found
  end
end
if #others == 0 then return table.concat(answers, '\n') end
--@record
local function renew(i)
  local want = ARGV[2 * i - 1]
  local refusal = open(KEYS[i], texts[i], '')
  if refusal then return refusal.err and 'ERROR ' .. refusal.err or refusal end
  settle()
  if now > sub(want, 89, 104) then return finish('LATE') end
  if state == 'F' or token ~= sub(want, 1, 16) or id ~= sub(want, 17, 80) then return finish('LOST', 'notheld') end
  if state == 'R' then return finish('LOST', 'revoked') end
  if sub(want, 105) == 'N' then
    since, length = now, sub(want, 81, 88)
  elseif state == 'P' then
    length = sub(want, 81, 88)
  end
  state = 'H'
  keep_until(end_us() + R_US)
  return finish('RENEWED', left())
end

for _, i in ipairs(others) do
  local done, answer = pcall(renew, i)
  if not done then answer = 'ERROR ' .. (type(answer) == 'table' and answer.err or answer) end
  answers[i] = string.gsub(answer, '\n', ' ')
end
return table.concat(answers, '\n')
