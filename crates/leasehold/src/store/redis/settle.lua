#!lua flags=allow-oom
-- settle: only settles. Sent after a claim has ended, after MORE, and by a re-check while the memory is full: then new
-- names and entries are refused, but hand-overs never.
--
-- KEYS     1 the record
-- ARGV     none
-- RETURNS  SETTLED …
--          FOREIGN type | NEWER version
-- EFFECTS  ends a lease whose time is over; makes the next live waiter the holder and notifies it; drops up to 64 dead
--          waiters
-- RETRY    safe
-- COST     TIME, HMGET; a hand-over as in release
--@clock
local name, asked, found, got = KEYS[1], nil, nil, nil
--@open
--@settle
--@save
return 'SETTLED' .. said
