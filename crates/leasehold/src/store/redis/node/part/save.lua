-- save: writes, then publishes by pcall: a message that cannot be published counts as lost (P8). Sets `said`, which follows
-- the first word of every reply: server time, highest token, waiters, and C if this script has called a waiter.
if keep ~= ZEROS then
  local record = 'lq1' .. state .. others .. (called and 'C' or '-') .. highest .. keep .. released
  if called then record = record .. called .. called_ticket .. called_until end
  if state ~= 'F' then record = record .. id .. token .. since .. length .. rear end
  local is_longer = not found or keep ~= sub(found, NODE.keep)
  if is_longer or is_queue_new then
    -- At least 1: a time to live of 0 deletes the key.
    local ttl_ms = math.max(math.ceil((keep - now_us) / 1000), 1)
    redis.call('SET', name, record, 'PX', ttl_ms)
    if others ~= 'N' then redis.call('PEXPIRE', queue, ttl_ms) end
  elseif record ~= found then
    redis.call('SET', name, record, 'KEEPTTL')
  end
elseif found then
  redis.call('DEL', name, queue)
end
if told then
  for at = 1, #told, 2 do
    redis.pcall('PUBLISH', told[at], told[at + 1])
  end
end
local said = ' ' .. now .. ' ' .. highest .. ' ' .. others .. ' ' .. has_called
