-- enqueue: defines what acquire does with the queue.

-- Updates the waiter that sends its request again. Comes before `settle`: the re-check shows that this waiter lives, so an
-- older silence must not drop it.
local function note_seen(pool, who, limit, ticket)
  keep_for_standing_waiter(pool)
  if pool.upgrade and sub(pool.upgrade, UPGRADE.id) == who then
    pool.upgrade = who .. limit .. now .. sub(pool.upgrade, UPGRADE.ticket.from)
  end
  local waiter = pool.entry
  if not waiter then return end
  local place, share = sub(waiter, WAITER.place.to.lease), sub(waiter, WAITER.share.from)
  local after = ticket < sub(waiter, WAITER.ticket) and later_than(pool, ticket)
  if after and after ~= who then
    -- The waiter was passed over. Then a copy of its first request, which had no ticket yet, put it at the tail (P6).
    unlink(pool, who)
    insert(pool, who, after, ticket, limit .. now, place, share)
    return
  end
  ticket = after and ticket or sub(waiter, WAITER.ticket)
  pool.entry = limit .. now .. ticket .. place .. sub(waiter, WAITER.before.from)
  pool.puts['e' .. who] = pool.entry
  if pool.tail == who then pool.tail_ticket = ticket end
end

-- Whether a waiter comes back to the head of the queue, before one that does not fit (P33).
local function is_before_head(pool, ticket)
  return ticket and pool.kind ~= 'V' and sub(read_two(pool, pool.head), WAITER.ticket) > ticket
end

-- Puts a new waiter into the queue, and returns its ticket. A ticket brings it back to its place. A waiter of a condition
-- variable does not come back: its new ticket is how it learns that it was dropped (P43).
local function enqueue(pool, who, ticket, seen, place, share)
  local after, known
  if pool.kind == 'V' then known, ticket = ticket, nil end
  if ticket and pool.counts > 0 and ticket <= pool.tail_ticket then
    after = later_than(pool, ticket)
    if not after then ticket = nil end
  end
  -- Too far from the head: it gets a place at the tail and a new ticket, like a new waiter.
  if not ticket then
    ticket = pool.counts > 0 and pool.tail_ticket >= now and format('%016.0f', pool.tail_ticket + 1) or now
    if known and known >= ticket then ticket = format('%016.0f', known + 1) end
  end
  insert(pool, who, after, ticket, seen, place, share)
  return ticket
end
