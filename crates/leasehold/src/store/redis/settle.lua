#!lua flags=allow-oom
-- settle: only look after the queue. Called after a claim has ended, after MORE, and by a look that met a full memory:
-- new names and entries are refused then, hand-overs never.
--
-- KEYS     1 the record
-- ARGV     none
-- RETURNS  SETTLED …
--          FOREIGN type | NEWER version
-- EFFECTS  ends what has ended; makes the next live waiter the holder and publishes that; drops up to 64 dead ones
-- RETRY    safe
-- COST     TIME, HMGET; a hand-over as in release
--@clock
local name, asked, found = KEYS[1], nil, nil
--@open
--@settle
--@save
return 'SETTLED' .. said
