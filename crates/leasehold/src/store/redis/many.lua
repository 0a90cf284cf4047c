#!lua
-- many: acquires and releases of up to 16 names, in the order of the keys. Each has the effect and the reply that it would
-- have alone (P53).
--
-- KEYS     the records. A name may come twice: a release, and the next acquire
-- ARGV     1    the earliest `not_after` of the acquires (16)
--          2    the `not_after` of each key (16 each), in one argument
--          3-6  what all acquires have in common, as the arguments 5, 3, 6 and 7 of `acquire`: time to live of a fresh
--               grant; number of tokens and label; place in the queue; longest wait, without a ticket
--          6+i  for each key grant id (64) and lease in ms (8), an acquire; or lh1H, token (16) and grant id (64), a
--               release
-- RETURNS  16 digits: the server's time. Then a line for each request without a short reply: its number (2), and the reply
--          of `acquire` or `release`, or ERROR text: an error concerns only its own name (P8). Every other acquire is
--          granted, and every other lease is released
-- EFFECTS  those of `acquire` and `release`. Not `allow-oom`, for the sake of the acquires: if the memory is full, the
--          server refuses the script before it begins, and each request is sent alone
-- RETRY    safe, as `acquire` and `release` are
-- COST     TIME; for each name GET and SET, or GET and SETRANGE; otherwise GET and the costs of the long path
--@clock
local try, sub, find, in_time = redis.pcall, string.sub, string.find, now <= ARGV[1]
local keep_ms, rear, nobody = ARGV[3], ARGV[4], '----------------------------------------------------------------'
local others = ''
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
-- The short paths of part/take.lua and part/free.lua, with `pcall`: an error ends only its own name.
for i, key in ipairs(KEYS) do
  local asked, found, done = ARGV[6 + i], try('GET', key), nil
  local is_release = #asked > ASKED.size
  -- An error is a table: its # is 0.
  local is_text = found and #found > 0
  if is_release then
    if is_text and find(found, asked, 1, true) == 1 and sub(found, RECORD.length) <= '00060000' then
      done = try('SETRANGE', key, 'RECORD.state.offset', 'F')
    end
  elseif in_time and not found then
    done = try('SET', key, 'lh1H' .. now .. asked .. now .. nobody .. rear, 'PX', keep_ms)
  elseif in_time and is_text and sub(found, RECORD.version.to.state) == 'lh1F' and sub(found, RECORD.token) < now then
    local last = sub(found, RECORD.id)
    if find(asked, last, 1, true) ~= 1 then
      done = try('SET', key, 'lh1H' .. now .. asked .. now .. last .. rear, 'PX', keep_ms)
    end
  end
  if not done or type(done) == 'table' and done.err then
--@long
  end
end
return now .. others
