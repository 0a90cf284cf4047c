-- The two marks of a guarded key (P22). Every script of the fence begins with this part; what it does follows.
--
-- KEYS     1 the marks   2 the key that they guard (one hash tag: a cluster keeps them together)
-- ARGV     1 READ or WRITE   2 token, 16 digits   3 client, 16 hexadecimal digits   4 number of its call, 16 digits
--          5 how long the marks are kept, in ms; 0 is for ever   6 the value to write
-- RETURNS  STALE mark | FOREIGN which | what the second part says
-- EFFECTS  none before raise(): who is refused has changed nothing
-- RETRY    safe. A write is known by client and number and done once, also if it comes back later than its successors
-- COST     GET and SET of 69 bytes, and one or two commands on the guarded key
--
-- The marks are one string, '1 writers all client call': the layout, the highest token of a writer, the highest of all,
-- and which call of which client was that writer's last.
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

-- Written also where nothing changes: only a primary can, and a replica's old data is no answer.
local function raise()
  local text = '1 ' .. writers .. ' ' .. all .. ' ' .. by .. ' ' .. last
  if keep_ms == '0' then
    redis.call('SET', marks, text)
  else
    redis.call('SET', marks, text, 'PX', keep_ms)
  end
end
