-- grant: defines the functions that make, change and end grants. Each keeps what the record says about all grants.

-- Returns the end of a lease, in µs.
local function end_of(grant)
  return sub(grant, GRANT.since) + sub(grant, GRANT.length) * 1000
end

local function lease_of(grant)
  return sub(grant, GRANT.since) .. ' ' .. sub(grant, GRANT.length)
end

-- Notes that a lease ends at this time, in µs.
local function note_end(pool, end_us)
  if end_us < pool.soonest + 0 then pool.soonest = format('%016.0f', end_us) end
  if pool.cursor ~= '' and end_us < pool.least + 0 then pool.least = format('%016.0f', end_us) end
end

-- Keeps the record for long enough for a lease (P3). If it has to be kept for longer, it is kept for `more_ms` beyond that,
-- so that most grants write no new time to live.
local function keep_for(pool, end_us, token, more_ms)
  local needed_us = math.max(end_us, now_us, token + 0) + R_US
  if needed_us > pool.keep then pool.keep = needed_us + more_ms * 1000 end
end

-- Returns what a grant adds to the units of the record. The units of a grant of a barrier are the place of an arrival.
local function counted_units(pool, units) return pool.kind == 'B' and 1 or units + 0 end

-- Makes a grant, and returns its token. It follows the clock, and never falls when the clock steps back (P3, P32).
local function add(pool, id, state, share, length, label)
  local token = now > pool.last and now or format('%016.0f', pool.last + 1)
  pool.last, pool.units, pool.grants = token, pool.units + counted_units(pool, sub(share, SHARE.units)), pool.grants + 1
  if sub(share, SHARE.mode) == 'U' then pool.upgradeable = 'U' end
  if pool.newest < now then pool.newest = now end
  pool.puts['g' .. sub(id, ID.public)] = sub(id, ID.nonce) .. state .. share .. token .. now .. length .. label
  note_end(pool, now_us + length * 1000)
  return token
end

-- Writes a grant that begins or ends at another time than before.
local function change(pool, field, grant)
  if string.find(sub(grant, GRANT.state), '[RC]') then pool.marked = 'M' end
  if pool.newest < sub(grant, GRANT.since) then pool.newest = sub(grant, GRANT.since) end
  pool.puts[field] = grant
  note_end(pool, end_of(grant))
  keep_for(pool, end_of(grant), sub(grant, GRANT.token), sub(grant, GRANT.length))
end

-- Takes a grant out.
local function take_out(pool, field, grant)
  pool.units, pool.grants = pool.units - counted_units(pool, sub(grant, GRANT.units)), pool.grants - 1
  if sub(grant, GRANT.mode) == 'U' then pool.upgradeable = '-' end
  pool.puts[field] = false
end

-- Returns the field and the text of a grant, if the record has it.
local function find_grant(pool, id)
  local field = 'g' .. sub(id, ID.public)
  local grant = read(pool, field)
  if grant and sub(grant, GRANT.nonce) == sub(id, ID.nonce) then return field, grant end
end
