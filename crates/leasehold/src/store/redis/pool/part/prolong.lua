-- prolong: the short path of a renewal of one name, from now on, while no lease has ended. Adds the reply to `answers`, or
-- adds the name to `others`, which take the long path.
local want, answer = ARGV[2 + i], ''
local field = 'g' .. sub(want, WANT.id.public)
local got = pcall_('HMGET', name, 'r', 'q', field)
local record, grant = got[1], got[3]
if record and grant and is_early and #record == POOL.size and now < sub(record, POOL.soonest)
  and sub(want, WANT.start) == 'H' and sub(grant, GRANT.nonce) == sub(want, WANT.id.nonce)
  and sub(grant, GRANT.token) == sub(want, WANT.token) and sub(grant, GRANT.token) <= now
  and find(sub(grant, GRANT.state), '[HP]') then
  local soonest, newest, keep = sub(record, POOL.soonest), sub(record, POOL.newest), sub(record, POOL.keep)
  local lease_us = sub(want, WANT.lease) * 1000
  local kept_us = now + lease_us + 60000000
  if soonest - now > lease_us then soonest = format('%016.0f', now + lease_us) end
  local is_kept = kept_us <= keep + 0
  if not is_kept then keep = format('%016.0f', kept_us + lease_us) end
  redis.call('HSET', name, 'r', sub(record, POOL.version.to.last) .. soonest .. (now < newest and newest or now) .. keep
    .. sub(record, POOL.flags.from),
    field, sub(grant, GRANT.nonce) .. 'H' .. sub(grant, GRANT.mode.to.token) .. now .. sub(want, WANT.lease)
    .. sub(grant, GRANT.label))
  if not is_kept then redis.call('PEXPIRE', name, format('%.0f', math.ceil((keep - now) / 1000))) end
  local queue = got[2]
  local strict = queue and sub(queue, WAITERS.counts.strict)
  answer = 'R' .. now .. sub(record, POOL.last) .. (not strict and 'N' or strict ~= '00000' and 'S' or 'O')
end
answers[i] = answer
if answer == '' then others[#others + 1] = i end
