-- recheck: updates the entry of a waiter that sends its request again. Comes before `settle`: the re-check shows that this
-- waiter lives, so an older silence must not drop it.
local after, later
if ticket and ticket < sub(entry, ENTRY.ticket) then after, later = later_than(ticket) end
if after and after ~= asked then
  -- The waiter was passed over. Then a copy of its first request, which had no ticket yet, put it at the tail (P6).
--@unlink
  enqueue(after, later, sub(entry, ENTRY.place.to.lease), sub(entry, ENTRY.tail))
else
  entry = limit .. now .. (after and ticket or sub(entry, ENTRY.ticket)) .. sub(entry, ENTRY.place.from)
  puts = { ['e' .. asked] = entry }
  if tail == asked then tail_ticket = sub(entry, ENTRY.ticket) end
end
