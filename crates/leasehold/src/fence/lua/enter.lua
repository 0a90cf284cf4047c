#!lua flags=allow-oom
-- Enters, and does not touch the guarded key. Works if the memory is full, as reads do.
--
-- KEYS     1 the marks   2 the key that they guard (one hash tag: a cluster keeps them together)
-- ARGV     1 READ or WRITE   2 token, 16 digits   3 client, 16 hexadecimal digits   4 number of its call, 16 digits
--          5 time in ms for which the marks are kept; 0 means for ever
-- RETURNS  DONE | STALE mark | FOREIGN marks
-- EFFECTS  the marks are raised
-- RETRY    safe: to enter twice is to enter
-- COST     GET, and PTTL or SET of 69 bytes
--@marks
raise()
return 'DONE'
