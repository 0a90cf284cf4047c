#!lua
-- many: acquires and releases of up to 16 names, in the order of the keys. Each has the effect and the reply that it would
-- have alone (P53).
--
-- KEYS     the records. A name may come twice: a release, and the next acquire
-- ARGV     1    the earliest `not_after` of the acquires (16)
--          2    the `not_after` of each key (16 each), in one argument
--          3    the numbers (2 digits each) of the keys that occur earlier in KEYS, too. Each is read again when its turn
--               comes, because an earlier request may have changed it
--          4-8  what all acquires have in common: COMMON; time to live of a fresh grant in ms; number of tokens and label;
--               place in the queue; longest wait, without a ticket. The last four as the arguments 5, 3, 6 and 7 of
--               `acquire`
--          8+i  for each key ASKED, an acquire; or lh1H, token (16) and grant id (64), a release
-- RETURNS  16 digits: the server's time. Then a line for each request without a short reply: its number (2), and the reply
--          of `acquire` or `release`, or ERROR text: an error concerns only its own name (P8). Every other acquire is
--          granted, and every other lease is released
-- EFFECTS  those of `acquire` and `release`. Not `allow-oom`, for the sake of the acquires: if the memory is full, the
--          server refuses the script before it begins, and each request is sent alone
-- RETRY    safe, as `acquire` and `release` are
-- COST     TIME and MGET; for each name SET or SETRANGE, and GET if argument 3 has its number; otherwise the costs of the
--          long path, with GET if MGET found no string
--@clock
local find, sub, try, others = string.find, string.sub, redis.pcall, ''
local nobody = '----------------------------------------------------------------'
local function acquire(KEYS, ARGV, found)
  local got
  if now <= ARGV[4] and found and #found == 0 and ARGV[6] ~= '' then
--@join
  end
--@acquire
end
local function release(KEYS, ARGV, found)
  local got
--@release
end
-- One MGET costs less than a GET for each name. If it fails, nothing was done: each request is sent alone.
local KEYS, ARGV, all, in_time = KEYS, ARGV, redis.call('MGET', unpack(KEYS)), now <= ARGV[1]
if ARGV[3] ~= '' then
  for number in string.gmatch(ARGV[3], '..') do all[tonumber(number)] = nil end
end
-- Each byte of a string costs (part/open.lua). So the parts that all new records share are joined once.
local session, lease_ms, keep_ms, rear = sub(ARGV[4], COMMON.session), sub(ARGV[4], COMMON.lease), ARGV[5], ARGV[6]
local front, middle, free = 'lh1H' .. now .. session, lease_ms .. now, 'lh1F' .. now
-- The short paths of part/take.lua and part/free.lua, with `pcall`: an error ends only its own name.
for i = 1, #KEYS do
  local key, asked, found, done = KEYS[i], ARGV[8 + i], all[i], nil
  local is_release = #asked > ASKED.size
  -- MGET never gives nil, but false.
  if found == nil then
    found = try('GET', key)
    -- An error is a table: its # is 0.
    if found and #found == 0 then found = false end
  end
  if is_release then
    if found and find(found, asked, 1, true) == 1 and sub(found, RECORD.length) <= '00060000' then
      -- SETRANGE returns the length of the record, which it keeps. An error is a table.
      done = try('SETRANGE', key, 'RECORD.state.offset', 'F') == #found
    end
  elseif in_time and not found then
    -- MGET found no string. NX: a value of another type stays, and its request takes the long path.
    done = try('SET', key, front .. asked .. middle .. nobody .. rear, 'PX', keep_ms, 'NX')
    done = done and not done.err
  elseif in_time and #found > RECORD.short and find(found, 'lh1F', 1, true) == 1 and found < free then
    -- The record is free, and its token is below `now`. If counter and nonce are equal, the long path compares all of the
    -- ID.
    local last = sub(found, RECORD.id)
    if not find(last, asked, ID.counter.from, true) then
      done = not try('SET', key, front .. asked .. middle .. last .. rear, 'PX', keep_ms).err
    end
  end
  if not done then
--@long
  end
end
return now .. others
