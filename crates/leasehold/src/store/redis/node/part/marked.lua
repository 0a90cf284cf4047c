-- marked: returns a refusal, unless the node may vote. Takes `marker`, the key of the marker, and `seen`, the marker that
-- the client got when it greeted: `lq1m`, then the end of the quarantine (16), and more.
if redis.pcall('GET', marker) ~= seen then return 'UNMARKED ' .. now end
if string.sub(seen, MARKER.rests) > now then return 'RESTING ' .. now .. ' ' .. string.sub(seen, MARKER.rests) end
