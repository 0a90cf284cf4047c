-- release: the rest of a release, if the lease is contended or is not held. Takes KEYS and ARGV of `release`, `now`, and
-- `found` or `got` of a short path. Returns the reply.
local name, asked, who, used = KEYS[1], nil, string.sub(ARGV[1], RECORD.id.from), ARGV[3]
if ARGV[2] and ARGV[2] ~= '' then
--@pass
end
--@open
-- A lease that is given back is not ended because of its age first: it ends here anyway, and the next waiter is the same.
local ended, word = nil, 'NOTHELD'
if state ~= 'F' and state ~= 'C' and id == who and token == sub(ARGV[1], RECORD.token) then
  word = 'RELEASED'
--@spend
elseif state == 'C' and id == who or (state == 'F' and id or sub(rear, REAR.released)) == who then
  word = 'RELEASED'
end
--@settle
if ended and state == 'F' and counts == 0 and ended + 0 > R_MS then
  keep, ttl_changed = string.format('%016.0f', now_us + R_US), true
end
--@save
return word .. said
