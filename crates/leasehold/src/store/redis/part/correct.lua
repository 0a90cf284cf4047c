-- correct: replaces each time in the future by the present time. Such a time shows that the clock was set back.
if state ~= 'F' and since > now then
  since = now
--@last
  keep, ttl_changed = string.format('%016.0f', last_us + R_US), true
end
for at = LAPSE.time.from, #lapses, LAPSE.size do
  if sub(lapses, LAPSE.time(at)) > now then
--&
    lapses = sub(lapses, 1, at - 1) .. now .. sub(lapses, LAPSE.time(at).behind) end
end
