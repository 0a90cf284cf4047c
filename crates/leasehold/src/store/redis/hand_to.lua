#!lua flags=allow-oom
-- hand_to: gives the lease to the first live waiter with a label (P51). Without one, nothing changes.
--
-- KEYS     1 the record
-- ARGV     1 token (16) and grant id (64)
--          2 bytes of the label (3), and the label
-- RETURNS  RELEASED … | NOWAITER … | LOST … notheld
--          FOREIGN type | NEWER version
-- EFFECTS  makes the waiter the holder, and notifies it; otherwise settles
-- RETRY    never: a second copy that comes after NOWAITER would take the lease from a holder that holds on
-- COST     TIME, HMGET, a HMGET for each waiter up to the named one, PUBSUB NUMSUB for each waiter with the label; HMGET,
--          HGET for the neighbours, HSET, HDEL, PUBLISH
--@clock
local name, asked, found, got = KEYS[1], nil, nil, nil
--@open
--@settle
local word, how = 'LOST', ' notheld'
if state ~= 'F' and state ~= 'C' and token .. id == ARGV[1] then
  word, how = 'NOWAITER', ''
  local who, left = head, math.floor(counts / 100000)
  while left > 0 and word ~= 'RELEASED' do
    local got = redis.call('HMGET', name, 'e' .. who, 'n' .. who)
    local waiter, after = got[1], got[2]
    if sub(waiter, ENTRY.label_length.from) == ARGV[2] then
--@alive
      if alive then
        local ended, used
        word, asked, entry = 'RELEASED', who, waiter
--@unlink
--@spend
--@promote
      end
    end
    who, left = after, left - 1
  end
  if counts == 0 then lapses = '' end
end
--@save
return word .. said .. how
