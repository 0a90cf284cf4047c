-- long: carries out one of many requests that has no short path. Adds its number and its reply to `others`. MGET does not
-- tell an absent key from one that is no string. GET does.
local is_done, reply
if not found then found = try('GET', key) end
if is_release then
  is_done, reply = pcall(release, { key }, { asked }, found)
else
  is_done, reply = pcall(acquire, { key },
    { session .. asked, lease_ms, rear, sub(ARGV[2], TIME[i]), keep_ms, ARGV[7], ARGV[8] }, found)
end
local failure = type(reply) == 'table' and reply.err or not is_done and reply
if failure then reply = 'ERROR ' .. failure end
others = others .. '\n' .. string.format('%02d', i) .. string.gsub(reply, '\n', ' ')
