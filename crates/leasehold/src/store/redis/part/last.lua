-- last: the moment beyond which the record of a held lease is kept for R. Gives `last_us`: its end, or for one that was
-- renewed a lease later, so that it need not be said again at each renewal; and the end of its range.
local last_us = since + length * 1000
if state == 'H' and since > token then last_us = last_us + length * 1000 end
last_us = math.max(last_us, token + sub(rear, 65, 72) - 1)
