-- sweep: defines `sweep`, which ends the leases whose time is over. Returns whether there were any.
--
-- HSCAN returns every field that is there during the whole scan, so a scan misses no grant, whatever other steps do between
-- its parts. A grant that comes, or ends earlier, in the meantime lowers `least`.
--
-- A time in the future shows that the clock was set back. It becomes the present time: otherwise a dead holder would hold
-- until the clock has caught up (P1). If the step changes nothing else (`is_brief`), it leaves such times to a later step.
local function sweep(pool, is_brief)
  if pool.grants == 0 then
    pool.soonest, pool.cursor, pool.marked = NEVER, '', '-'
    return false
  end
  local is_back = pool.newest > now and not is_brief
  if is_back or now >= pool.soonest and pool.cursor == '' then
    pool.cursor, pool.least, pool.marked = '0', NEVER, '-'
  end
  if pool.cursor == '' then return false end
  local is_one_step, least_us = pool.cursor == '0', pool.least + 0
  local ended, ahead, grants = {}, {}, {}
  local function visit(field, grant)
    local since, length = sub(grant, GRANT.since), sub(grant, GRANT.length)
    local end_us = math.min(since + 0, now_us) + length * 1000
    if string.find(sub(grant, GRANT.state), '[RC]') then pool.marked = 'M' end
    if since + length * 1000 <= now_us then
      ended[#ended + 1], grants[field] = format('%016.0f', since + length * 1000) .. field, grant
      return
    end
    least_us = math.min(least_us, end_us)
    if since > now then ahead[#ahead + 1], grants[field] = field, grant end
  end
  local found = redis.call('HSCAN', pool.name, pool.cursor, 'MATCH', 'g*', 'COUNT', SCANNED)
  local cursor, stored = found[1], found[2]
  for at = 1, #stored, 2 do
    if pool.puts[stored[at]] == nil then visit(stored[at], stored[at + 1]) end
  end
  for field, grant in pairs(pool.puts) do
    if grant and sub(field, FIELD.kind) == 'g' then visit(field, grant) end
  end
  -- A cursor means nothing to another run of the server. A scan of several steps may have missed a grant, so the next one
  -- begins soon (P35).
  if cursor == '0' and not is_one_step then least_us = math.min(least_us, now_us + AGAIN_US) end
  pool.least = format('%016.0f', least_us)
  if cursor == '0' then pool.soonest, pool.cursor = pool.least, '' else pool.cursor, pool.rest = cursor, 'M' end
  if is_brief and #ended == 0 then return false end
  if is_back then pool.newest = now end
  -- The time until which the record is kept depends on the order.
  table.sort(ahead)
  for _, field in ipairs(ahead) do
    local grant = grants[field]
    change(pool, field, sub(grant, GRANT.nonce.to.token) .. now .. sub(grant, GRANT.length.from))
  end
  table.sort(ended)
  for _, found in ipairs(ended) do
    local field = sub(found, ENDED.field)
    end_lease(pool, field, grants[field], sub(found, ENDED.time))
  end
  return #ended > 0
end
