#!lua flags=allow-oom
-- settle: only look after the queue. Called after a call has lapsed.
--
-- KEYS     1 the record
-- ARGV     none
-- RETURNS  SETTLED …
--          FOREIGN type | NEWER version
-- EFFECTS  ends what has ended; calls the next live waiter; drops up to 64 dead ones. Whatever the marker says.
-- RETRY    safe
-- COST     TIME, GET; a call as in give_back
--@clock
local name, found = KEYS[1], redis.pcall('GET', KEYS[1])
--@open
--@settle
--@save
return 'SETTLED' .. said
