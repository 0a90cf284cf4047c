#!lua flags=allow-oom
-- Enters, and leaves the guarded key alone. Works with a full memory, as reading does.
--
-- KEYS     1 the marks   2 the key that they guard (one hash tag: a cluster keeps them together)
-- ARGV     1 READ or WRITE   2 token, 16 digits   3 client, 16 hexadecimal digits   4 number of its call, 16 digits
--          5 how long the marks are kept, in ms; 0 is for ever
-- RETURNS  DONE | STALE mark | FOREIGN marks
-- EFFECTS  the marks are raised
-- RETRY    safe: to enter twice is to enter
-- COST     GET, and PTTL or SET of 69 bytes
--@marks
raise()
return 'DONE'
