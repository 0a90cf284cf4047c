#!lua flags=allow-oom
-- pool/renew: renews grants of pools, of up to 16 names.
--
-- KEYS     the records
-- ARGV     1    the earliest `not_after` of all (16)
--          2    the `not_after` of each key (16 each), in one argument
--          2+i  for each key H from now on or G from the grant, grant id (64), token (16), lease in ms (8)
-- RETURNS  one reply for each key, in order, separated by newlines:
--          R, the server's time (16), the highest token (16) and others (1): renewed now. The whole lease is left
--          RENEWED … since length | LOST … revoked | LOST … notheld | LATE …
--          OTHER | FOREIGN type | NEWER version | ERROR text: an error concerns only its own name (P8)
-- EFFECTS  the leases of the grants; settles a name if a lease has ended
-- RETRY    safe: a lease from now begins again, and a lease from the grant keeps its end
-- COST     TIME; for each name HMGET, HSET, and PEXPIRE once in the length of a lease
--@clock
local answers, others = {}, {}
local pcall_, sub, find, format = redis.pcall, string.sub, string.find, string.format
local is_early = now <= ARGV[1]
for i, name in ipairs(KEYS) do
--@prolong
end
if #others == 0 then return table.concat(answers, '\n') end
--@pool
local function renew(name, want, not_after)
  local asked = sub(want, WANT.id)
  local pool = open(name, asked)
  if not pool.puts then return pool end
  settle(pool, true)
  if now > not_after then return 'LATE' .. save(pool) end
  local field, grant = find_grant(pool, asked)
  if not grant or sub(grant, GRANT.state) == 'C' or sub(grant, GRANT.token) ~= sub(want, WANT.token) then
    return 'LOST' .. save(pool) .. ' notheld'
  end
  if sub(grant, GRANT.state) == 'R' then return 'LOST' .. save(pool) .. ' revoked' end
  local since, length = now, sub(want, WANT.lease)
  if sub(want, WANT.start) == 'G' then
    -- A fixed lease is claimed once, and never becomes shorter.
    since = sub(grant, GRANT.since)
    local had = sub(grant, GRANT.length)
    if sub(grant, GRANT.state) ~= 'P' or had > length then length = had end
  end
  grant = sub(grant, GRANT.nonce) .. 'H' .. sub(grant, GRANT.mode.to.token) .. since .. length
--&
    .. sub(grant, GRANT.label)
  change(pool, field, grant)
  return 'RENEWED' .. save(pool) .. ' ' .. lease_of(grant)
end

for _, i in ipairs(others) do
  local done, answer = pcall(renew, KEYS[i], ARGV[2 + i], sub(ARGV[2], TIME[i]))
  if not done or type(answer) == 'table' then
--&
    answer = 'ERROR ' .. (type(answer) == 'table' and answer.err or answer) end
  answers[i] = string.gsub(answer, '\n', ' ')
end
return table.concat(answers, '\n')
