-- enqueue: the functions by which acquire puts an entry into the queue, at the place of `ticket`.
--
-- Returns the first entry with a later ticket, if a bounded walk from the head finds it.
local function later_than(ticket)
  local at, looked_at = head, 0
  while at and looked_at < TICKET_STEPS do
    local got = redis.call('HMGET', name, 'e' .. at, 'n' .. at)
    if sub(got[1], ENTRY.ticket) > ticket then return at, got[1] end
    at, looked_at = got[2], looked_at + 1
  end
end

-- Puts the entry before the given one, whose text is `later`; without a given one, at the tail.
local function enqueue(after, later, wants, label)
  local before = tail
  puts = puts or {}
  if after then
    before = after ~= head and sub(later, ENTRY.before) or NOBODY
    puts['e' .. after], puts['n' .. asked] = sub(later, ENTRY.limit.to.lease) .. asked .. sub(later, ENTRY.tail), after
  else
    tail, tail_ticket = asked, ticket
  end
  if before == NOBODY then head = asked else puts['n' .. before] = asked end
  counts = counts + (sub(wants, PLACE.order) == 's' and 100001 or 100000)
  entry = limit .. now .. ticket .. wants .. before .. label
  puts['e' .. asked] = entry
end
