#!lua flags=allow-oom
-- settle: only settles. Sent after a call has lapsed.
--
-- KEYS     1 the record
-- ARGV     none
-- RETURNS  SETTLED …
--          FOREIGN type | NEWER version
-- EFFECTS  ends a vote whose time is over; calls the next live waiter; drops up to 64 dead waiters. The marker is not
--          checked, because no vote is given.
-- RETRY    safe
-- COST     TIME, GET; a call as in give_back
--@clock
local name, found = KEYS[1], redis.pcall('GET', KEYS[1])
--@open
--@settle
--@save
return 'SETTLED' .. said
