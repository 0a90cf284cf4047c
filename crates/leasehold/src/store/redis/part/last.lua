-- last: sets `last_us`, the time after which the record is kept for R. It is the end of the lease; for a renewed lease one
-- length later, so that not every renewal has to write a new time to live. It is never before the end of the range.
local last_us = since + length * 1000
if state == 'H' and since > token then last_us = last_us + length * 1000 end
last_us = math.max(last_us, token + sub(rear, REAR.range) - 1)
