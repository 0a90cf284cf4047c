local clock = redis.call('TIME')
-- Padded and joined as text. As a number, 1763650000123456 would become the text 1.7636500001235e+15.
local now = clock[2]
if #now < 6 then now = string.sub('00000' .. now, -6) end
now = clock[1] .. now
