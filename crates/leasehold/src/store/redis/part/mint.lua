-- mint: sets the token of a new grant (P3), and the number of tokens that are reserved with it (P19). Takes `range`, the
-- requested number, and may lower it. The token follows the clock, and never falls when the clock steps back. The range is
-- at most LEAD_US ahead of the clock.
if now > token then
  token = now
else
  token, ttl_changed = string.format('%016.0f', token + 1), true
  local allowed = math.max(now_us + LEAD_US - token, 1)
  if range + 0 > allowed then range = string.format('%08.0f', allowed) end
end
