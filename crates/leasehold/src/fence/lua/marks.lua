-- The two marks of a guarded key (P22). Every script of the fence checks them first, and raises them when nothing else can
-- fail. They are one string, '1 writers all client call': the layout, the highest token of a writer, the highest token of
-- all, and the last call of that writer, with its client. A refused call has changed nothing.
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
  if not writers or #stored ~= MARKS.size then return 'FOREIGN marks' end
end

-- Numbers below 2^53 are exact in Lua. Texts would be compared by the rules of the server's locale.
local mark = access == 'READ' and writers or all
if tonumber(token) < tonumber(mark) then return 'STALE ' .. mark end

if tonumber(token) > tonumber(all) then all = token end
-- A server still runs a request after its client gave the connection up. If such a write came after the next write of the
-- client, it would put the old value back, with a token that is still valid.
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
