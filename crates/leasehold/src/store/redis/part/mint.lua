-- mint: the token of a new grant (P3), and how many are reserved with it (P19). Takes and changes `range`, how many are
-- asked for. The token follows the clock, and never falls when that steps back; what is reserved is at most LEAD_US ahead
-- of it.
if now > token then
  token = now
else
  token, ttl_changed = string.format('%016.0f', token + 1), true
  local allowed = math.max(now_us + LEAD_US - token, 1)
  if range + 0 > allowed then range = string.format('%08.0f', allowed) end
end
