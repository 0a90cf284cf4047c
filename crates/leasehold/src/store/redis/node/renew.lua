#!lua flags=allow-oom
-- renew: renews the votes of up to 16 names.
--
-- KEYS     the records, and after them the marker
-- ARGV     1    the marker as the client has seen it
--          2    the earliest `not_after` of all (16)
--          3    the `not_after` of each name (16 each), in one argument
--          3+i  for each name H from now on or G from the grant, grant id (64), token (16), lease in ms (8). To fill a node
--               that does not know the grant, which then gives its vote: number of tokens (8), bytes of the label (3), and
--               the label
-- RETURNS  one reply for each name, in order, separated by newlines:
--          R and twice 16 digits: renewed now. These are the server's time and the highest token. The whole lease is left,
--          nobody waits
--          RENEWED … since length | FILLED … since length | LOST … revoked | LOST … notheld | LATE …
--          FOREIGN type | NEWER version | ERROR text: an error concerns only its own name (P8)
--          or one reply for all: UNMARKED time | RESTING time until
-- EFFECTS  the votes end later; settles each name
-- RETRY    safe: a lease from now begins again, a lease from the grant keeps its end, and a filled vote is renewed
-- COST     GET, TIME; for each name GET, SET; for a free vote with a queue also the cost of settle
--@clock
local marker, seen = KEYS[#KEYS], ARGV[1]
--@marked
local answers, rest, texts, sub = {}, {}, {}, string.sub
local is_early, length, keep = now <= ARGV[2], nil, nil
for i = 1, #KEYS - 1 do
--@prolong
end
if #rest == 0 then return table.concat(answers, '\n') end
local function renew(name, found, want, not_after)
--@open
  local word, asked, wanted, lease = 'RENEWED', sub(want, WANT.id), sub(want, WANT.token), sub(want, WANT.lease)
  if now > not_after then
    word = 'LATE'
  elseif state == 'C' or state ~= 'F' and id .. token ~= asked .. wanted then
    word = 'LOST notheld'
  elseif state == 'R' then
    word = 'LOST revoked'
  elseif state == 'H' then
    if sub(want, WANT.start) == 'H' then
      since, length = now, lease
      local until_us = now_us + lease * 1000 + R_US
      if keep + 0 < until_us then keep = string.format('%016.0f', until_us) end
    end
  elseif #want > WANT.tail.offset and sub(want, WANT.start) == 'H' and released ~= asked
    and wanted + math.max(sub(want, WANT.range) - 1, 0) >= highest + 0 then
    -- The condition above: a higher token that the node has voted for since may have been granted, and this vote must not
    -- continue an older grant. The call ends here: if it lapsed under this vote, its waiter would lose its place.
--@unlink
--@lapse
    word = 'FILLED'
    local tail, spare_us = sub(want, WANT.tail), 0
--@give
  else
    word = 'LOST notheld'
  end
--@settle
--@save
  if word == 'LATE' then return word .. said end
  if sub(word, 1, 4) == 'LOST' then return 'LOST' .. said .. sub(word, 5) end
  return word .. said .. ' ' .. since .. ' ' .. length
end

for _, i in ipairs(rest) do
  local done, answer = pcall(renew, KEYS[i], texts[i], ARGV[3 + i], sub(ARGV[3], TIME[i]))
  local is_table = type(answer) == 'table'
  if not done or is_table then answer = 'ERROR ' .. (is_table and answer.err or answer) end
  answers[i] = string.gsub(answer, '\n', ' ')
end
return table.concat(answers, '\n')
