-- The two marks of a guarded key (P22), which every script of the fence looks at first and raises when it is sure of the
-- rest. They are one string, '1 writers all client call': the layout, the highest token of a writer, the highest of all,
-- and which call of which client was that writer's last. What is refused below has changed nothing.
local marks, guarded = KEYS[1], KEYS[2]
local access, token, client, call, keep_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local writers, all, by, last = '0000000000000000', '0000000000000000', '0000000000000000', '0000000000000000'
local stored = redis.pcall('GET', marks)
if type(stored) == 'table' then
  if string.find(stored.err, 'WRONGTYPE', 1, true) then return 'FOREIGN marks' end
  return stored
end
if stored then
  writers, all, by, last = string.match(stored, '^1 (%d+) (%d+) (%x+) (%d+)$')
  if not writers or #stored ~= 69 then return 'FOREIGN marks' end
end

-- Below 2^53 a number is exact here. As text they would be compared by the rules of the server's language.
local mark = access == 'READ' and writers or all
if tonumber(token) < tonumber(mark) then return 'STALE ' .. mark end

if tonumber(token) > tonumber(all) then all = token end
-- A server still runs the request of a connection that its client gave up. When such a write comes after the client's
-- next one, it would put the old value back, with a token that is still good.
local repeated = false
if access == 'WRITE' then
  repeated = token == writers and client == by and tonumber(call) <= tonumber(last)
  if not repeated then writers, by, last = token, client, call end
end

local function raise()
  local text = '1 ' .. writers .. ' ' .. all .. ' ' .. by .. ' ' .. last
  if keep_ms ~= '0' then
    redis.call('SET', marks, text, 'PX', keep_ms)
  elseif text ~= stored or redis.call('PTTL', marks) ~= -1 then
    redis.call('SET', marks, text)
  end
end
