-- marked: whether the node has a vote. Takes `marker`, its key, and `seen`, what the client has seen there when it greeted;
-- `lq1m`, then until when the node rests (16).
if redis.pcall('GET', marker) ~= seen then return 'UNMARKED ' .. now end
if string.sub(seen, 5, 20) > now then return 'RESTING ' .. now .. ' ' .. string.sub(seen, 5, 20) end
