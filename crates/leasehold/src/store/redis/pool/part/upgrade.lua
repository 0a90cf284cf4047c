-- upgrade (P37, P38): a grant becomes that of a writer, without a moment between the two. It waits ahead of the queue.
local of, of_token = sub(ARGV[9], REPLACED.id), sub(ARGV[9], REPLACED.token)
local field = 'g' .. sub(of, ID.public)
local grant = read(pool, field)
local waits = pool.upgrade and sub(pool.upgrade, UPGRADE.id) == asked
if not is_upgradeable(grant, of, of_token) then return 'REFUSED' .. save(pool) .. ' grant W 000000' end
if pool.grants == 1 then
  take_out(pool, field, grant)
  pool.released = of
  local token = add(pool, asked, 'H', 'P' .. sub(share, SHARE.units), ARGV[2], ARGV[5])
  keep_for(pool, now_us + ARGV[2] * 1000, token, ARGV[2])
  return 'GRANTED' .. save(pool) .. ' ' .. token .. ' 00000001 ' .. now .. ' ' .. ARGV[2]
end
local left = first_left(pool)
if not queues then
  -- The caller stops waiting, and keeps the grant that it has (P38). Those that the upgrade has kept out go on.
  if waits then
    pool.upgrade = nil
    settle(pool)
  end
  return 'BUSY' .. save(pool) .. left
end
if not waits then
  pool.upgrade = asked .. limit .. now .. (ticket or now) .. place .. ARGV[2] .. of .. of_token
--&
    .. sub(share, SHARE.units) .. ARGV[5]
end
return 'QUEUED' .. save(pool) .. ' ' .. sub(pool.upgrade, UPGRADE.ticket) .. left .. (waits and ' before' or ' now')
