-- save: writes, then publishes by pcall. An error before it leaves the record unchanged, and a message that cannot be
-- published counts as lost (P5, P8). Takes the locals of `open`. Sets `said`, which follows the first word of every reply:
-- server time, highest token, other waiters (N nobody, O others, S a strict one), D done or M more to settle, the claim
-- of a grant that was made here. Sets `lease`: its begin and its length, 0 0 if nobody holds. The client subtracts the
-- server's time from that, because a script would have to format a number.
local ttl_ms
if ttl_changed then
  -- At least 1: a time to live of 0 deletes the key.
  ttl_ms = math.max(math.ceil((math.max(keep + 0, token + R_US) - now_us) / 1000), 1)
end
local record = 'lh1' .. state .. token .. id .. length .. since .. rear
if counts > 0 or is_hash and state ~= 'F' then
  local ends = keep .. head .. string.format('%010d', counts) .. tail_ticket .. tail .. lapses
  local sets, drops = { 'HSET', name, 'q', ends }, nil
  if record ~= text or not is_hash then sets[5], sets[6] = 'r', record end
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
  if text and not is_hash then redis.call('DEL', name) end
  if #sets > 4 or ends ~= queue then redis.call(unpack(sets)) end
  if drops then redis.call(unpack(drops)) end
  if ttl_ms then redis.call('PEXPIRE', name, ttl_ms) end
elseif text or state ~= 'F' then
  -- A name that was never granted leaves nothing behind.
  if ttl_ms then
    redis.call('SET', name, record, 'PX', ttl_ms)
  elseif record ~= text or is_hash then
    redis.call('SET', name, record, 'KEEPTTL')
  end
end
if told then
  for at = 1, #told, 2 do
    redis.pcall('PUBLISH', told[at], told[at + 1])
  end
end
local said = ' ' .. now .. ' ' .. token .. (counts % 100000 > 0 and ' S ' or counts > 0 and ' O ' or ' N ')
--&
  .. rest .. ' ' .. handed
local lease = state == 'F' and '0 0' or since .. ' ' .. length
