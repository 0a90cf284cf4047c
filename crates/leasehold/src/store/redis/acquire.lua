#!lua
-- acquire: takes the lease, or a place in the queue. A waiter sends it again, with the same ID, to re-check.
--
-- KEYS     1 the record
-- ARGV     1 grant id (64)
--          2 lease in ms (8)
--          3 number of tokens to reserve (8, P19), bytes of the caller's label (3), and the label
--          4 not_after in µs (16): after this time nothing is done (P4)
--          5 time to live of a fresh grant in ms: lease + R
--          6 for a place in the queue: claim in ms (8), L listens or P polls, s strict or r relaxed; absent or empty: BUSY
--          7 longest wait in ms (16, dashes: for ever), ticket of an earlier place (16, dashes: none); absent or empty:
--            neither
--          8 c if the client believes that somebody waits: then the record is read as a hash first
-- RETURNS  16 digits: granted now. This is the token and the server's time. The whole lease is left, all requested tokens
--          are reserved, nobody waits.
--          GRANTED … token range lease | QUEUED … ticket lease now|before | BUSY … lease | GONE … | LATE … |
--          FULL …, where a lease is its begin (µs) and its length (ms), 0 0 if nobody holds
--          FOREIGN type | NEWER version
-- EFFECTS  makes the grant or the entry; settles; notifies the holder of a range when somebody begins to wait (P9). Not
--          `allow-oom`: if the memory is full, the server refuses the script before it begins.
-- RETRY    safe: an ID that holds is granted again, an ID that waits is queued again, with the time that is left (P2, P3)
-- COST     TIME, GET, SET. Queued: TIME, HMGET, HSET; the first waiter of a name TIME, GET, DEL, HSET, PEXPIRE.
--          PUBLISH to the holder of a range. A waiter that comes back to its place costs a walk of up to 64 entries.
--@clock
local found, got
if now <= ARGV[4] then
  if not ARGV[8] then
--@take
  end
  if (not found or #found == 0) and ARGV[6] and ARGV[6] ~= '' then
--@join
  end
end
--@acquire
