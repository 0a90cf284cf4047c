-- spend: the holder gives the lease back. `used`, unless it is nil, is the highest token of its range that it has used
-- (P19). A token beyond that range counts as the last one of the range. Sets `ended`, the length of the lease.
state, ended = 'F', length
if used and used > token then
  local last = string.format('%016.0f', token + sub(rear, REAR.range) - 1)
  token = used < last and used or last
end
