-- save: writes, then publishes by pcall: an error before leaves the record as it was, and a message that cannot be
-- published is one that was lost (P5, P8). Takes the locals of `open`; gives `said`, what every answer says after its
-- word: server time, highest token, who else waits (N nobody, O others, S a strict one), D done or M more to settle, the
-- claim of whoever was granted here; and `lease`: since when it lasts and for how long, 0 0 if nobody holds. Whoever
-- reads it takes off the server's time: a script would have to format a number.
local record = 'lh1' .. state .. token .. id .. length .. since .. prev .. label
if ttl_changed then
  -- At least 1: a time to live of 0 deletes the key.
  ttl_changed = math.max(math.ceil((math.max(keep + 0, token + R_US) - now_us) / 1000), 1)
end
if count > 0 then
  local queue = string.format('%05d%05d', count, strict) .. keep .. head .. tail .. tail_ticket .. lapses
  local sets, drops = { 'HSET', name }, nil
  if record ~= text or shape ~= 'hash' then sets[3], sets[4] = 'r', record end
  if queue ~= meta then
    local at = #sets
    sets[at + 1], sets[at + 2] = 'm', queue
  end
  if puts then
    for field, value in pairs(puts) do
      if value then
        local at = #sets
        sets[at + 1], sets[at + 2] = field, value
      elseif drops then
        drops[#drops + 1] = field
      else
        drops = { 'HDEL', name, field }
      end
    end
  end
  if shape == 'string' then redis.call('DEL', name) end
  if #sets > 2 then redis.call(unpack(sets)) end
  if drops then redis.call(unpack(drops)) end
  if ttl_changed then redis.call('PEXPIRE', name, ttl_changed) end
elseif shape == 'none' and state == 'F' then
  -- A name that was never granted leaves nothing behind.
elseif ttl_changed then
  redis.call('SET', name, record, 'PX', ttl_changed)
elseif record ~= text or shape ~= 'string' then
  redis.call('SET', name, record, 'KEEPTTL')
end
if told then
  for at = 1, #told, 2 do
    redis.pcall('PUBLISH', told[at], told[at + 1])
  end
end
local said = ' ' .. now .. ' ' .. token .. ' ' .. (strict > 0 and 'S' or count > 0 and 'O' or 'N') .. ' ' .. rest .. ' ' .. handed
local lease = state == 'F' and '0 0' or since .. ' ' .. length
