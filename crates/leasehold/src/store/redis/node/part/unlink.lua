-- unlink: removes `asked` from the queue, at any place. Sets `was_queued`.
local was_queued = others ~= 'N' and redis.call('ZREM', queue, asked .. 's', asked .. 'r') > 0
if was_queued then
--@head
end
