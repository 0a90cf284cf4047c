#!lua flags=allow-oom
-- renew: renews the leases of up to 16 names.
--
-- KEYS     the records
-- ARGV     1    the earliest `not_after` of all (16)
--          2    the `not_after` of each key (16 each), in one argument
--          2+i  for each key the beginning of its record if the grant is held and the lease keeps its length: lh1H, token
--               (16), grant id (64), lease in ms (8). lh1G instead of lh1H: not from now, but from the grant
-- RETURNS  one reply for each key, in order, separated by newlines:
--          R and 16 digits: renewed now. This is the server's time. The whole lease is left, the token of the grant is the
--          highest, nobody waits
--          RENEWED … since length | LOST … revoked | LOST … notheld | LATE …
--          FOREIGN type | NEWER version | ERROR text: an error concerns only its own name (P8)
-- EFFECTS  the grants' leases; settles each name
-- RETRY    safe: a lease from now begins again, and a lease from the grant keeps its end
-- COST     TIME; for each name GET, SETRANGE, and PEXPIRE once in the length of a lease; with a queue also HMGET, HSET,
--          PEXPIRE
--@clock
local answers, others, texts = {}, {}, {}
local pcall_, sub, find, format = redis.pcall, string.sub, string.find, string.format
local usual, is_early, lease = 'R' .. now, now <= ARGV[1], nil
-- A lease that began at `ended` or before has ended. A lease that was renewed in this `span` has a time to live that is
-- long enough for all of the span: the first renewal in a span sets it, and the others write only a time.
local ended, span, keep_ms
for i, name in ipairs(KEYS) do
--@prolong
end
if #others == 0 then return table.concat(answers, '\n') end
local function renew(name, found, want, not_after)
  local asked, got
--@open
--@settle
  local word, is_from_now, wanted = 'RENEWED', sub(want, RECORD.state) == 'H', sub(want, RECORD.length.from)
  if now > not_after then
    word = 'LATE'
  elseif state == 'F' or state == 'C' or token .. id ~= sub(want, RECORD.token.to.id) then
    word = 'LOST notheld'
  elseif state == 'R' then
    word = 'LOST revoked'
  else
    local length_us = math.max(wanted * 1000, 1)
    local is_kept = state == 'H' and since > token
    if is_from_now then
      is_kept = is_kept and length == wanted and since <= now and since + 0 >= now_us - now_us % length_us
      since, length = now, wanted
    elseif state == 'P' then
      if length < wanted then length = wanted end
    else
      is_kept = true
    end
    state = 'H'
    if not is_kept then
--@last
      keep, ttl_changed = string.format('%016.0f', last_us + R_US), true
    end
  end
--@save
  if word == 'RENEWED' then
    -- The token is the highest: it is held.
    if is_from_now and counts == 0 and rest == 'D' and handed == '-' then return usual end
    return word .. said .. ' ' .. lease
  end
  if word == 'LATE' then return word .. said end
  return 'LOST' .. said .. string.sub(word, 5)
end

for _, i in ipairs(others) do
  local done, answer = pcall(renew, KEYS[i], texts[i], ARGV[2 + i], sub(ARGV[2], TIME[i]))
  if not done or type(answer) == 'table' then
--&
    answer = 'ERROR ' .. (type(answer) == 'table' and answer.err or answer) end
  answers[i] = string.gsub(answer, '\n', ' ')
end
return table.concat(answers, '\n')
