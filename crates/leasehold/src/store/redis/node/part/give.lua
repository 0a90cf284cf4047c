-- give: gives the vote to `asked` from now on, for `wanted`, `lease` and `tail`: number of tokens, and label. A range
-- of 0 is one token. If the record has to be kept for longer than before, it is kept for `spare_us` more.
local last = wanted
if sub(tail, TAIL.range) > '00000001' then last = string.format('%016.0f', wanted + sub(tail, TAIL.range) - 1) end
if last > highest then highest = last end
state, id, token, since, length, rear = 'H', asked, wanted, now, lease, tail
local until_us = now_us + lease * 1000 + R_US
if keep + 0 < until_us then keep = string.format('%016.0f', until_us + spare_us) end
