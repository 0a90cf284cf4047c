-- queue: defines the functions that read and change the queue. It is a linked list, as that of a mutex.

-- Returns the entry of an attempt, and the ID of the one after it.
local function read_two(pool, who)
  local e, n = 'e' .. who, 'n' .. who
  if pool.puts[e] == nil and pool.fields[e] == nil then
    local got = redis.call('HMGET', pool.name, e, n)
    pool.fields[e], pool.fields[n] = got[1], got[2]
  end
  return read(pool, e), read(pool, n)
end

local function step_of(waiter)
  return sub(waiter, WAITER.order) == 's' and 100001 or 100000
end

-- Returns the first entry with a later ticket, if a bounded walk from the head finds it.
local function later_than(pool, ticket)
  local who, looked_at = pool.head, 0
  while who and who ~= NOBODY and looked_at < TICKET_STEPS do
    local waiter, after = read_two(pool, who)
    if sub(waiter, WAITER.ticket) > ticket then return who end
    who, looked_at = after, looked_at + 1
  end
end

-- Puts an entry before the given one; without a given one, at the tail.
local function insert(pool, who, after, ticket, seen, place, share)
  local before = pool.tail
  if after then
    local later = read(pool, 'e' .. after)
    before = after ~= pool.head and sub(later, WAITER.before) or NOBODY
    pool.puts['e' .. after] = sub(later, WAITER.limit.to.lease) .. who .. sub(later, WAITER.share.from)
    pool.puts['n' .. who] = after
  else
    pool.tail, pool.tail_ticket = who, ticket
  end
  if before == NOBODY then pool.head = who else pool.puts['n' .. before] = who end
  pool.entry = seen .. ticket .. place .. before .. share
  pool.puts['e' .. who] = pool.entry
  pool.counts = pool.counts + step_of(pool.entry)
end

-- Takes an entry out.
local function unlink(pool, who)
  local waiter, after = read_two(pool, who)
  local before = who ~= pool.head and sub(waiter, WAITER.before)
  pool.puts['e' .. who], pool.puts['n' .. who] = false, false
  if before then pool.puts['n' .. before] = after else pool.head = after or NOBODY end
  if after then
    local later = read(pool, 'e' .. after)
    pool.puts['e' .. after] = sub(later, WAITER.limit.to.lease) .. (before or NOBODY) .. sub(later, WAITER.share.from)
  else
    pool.tail, pool.tail_ticket = before or NOBODY, before and sub(read(pool, 'e' .. before), WAITER.ticket) or ZEROS
  end
  pool.counts, pool.entry = pool.counts - step_of(waiter), nil
end
