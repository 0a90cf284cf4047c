-- long: carries out one of many requests that has no short path. Adds its number and its reply to `others`.
local is_done, reply
if is_release then
  is_done, reply = pcall(release, { key }, { asked }, found)
else
  local not_after = sub(ARGV[2], TIME[i])
  is_done, reply = pcall(acquire, { key },
    { sub(asked, ASKED.id), sub(asked, ASKED.lease), rear, not_after, keep_ms, ARGV[5], ARGV[6] }, found)
end
local failure = type(reply) == 'table' and reply.err or not is_done and reply
if failure then reply = 'ERROR ' .. failure end
others = others .. '\n' .. string.format('%02d', i) .. string.gsub(reply, '\n', ' ')
