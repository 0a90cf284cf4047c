-- spend: the holder gives back, and says in `used`, if that is not nil, up to which token it has used its range (P19). What
-- it says beyond that range is not believed. Gives `ended`, how long the lease was.
state, ended = 'F', length
if used and used > token then
  local last = string.format('%016.0f', token + sub(rear, 65, 72) - 1)
  token = used < last and used or last
end
