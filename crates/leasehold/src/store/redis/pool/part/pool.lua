-- pool: the long path of every script of pools.
--
-- The long paths of pools are functions over one table: a step of a pool can serve 64 waiters, and the functions cost less
-- than that. The short paths come before them in each script. They are text, like those of a mutex: see its `open`.
--
-- THE RECORD is a hash. docs/PROTOCOL.md has its layouts as tables.
--
--     r           POOL: kind, limit, units that are taken, last token, and bounds of times
--     q           WAITERS: the ends of the queue, and the lapses; absent while nobody waits
--     u           UPGRADE: the upgrade that waits ahead of the queue
--     g<public>   GRANT: a grant, by the public part of its ID
--     e<id>       WAITER: an entry of the queue
--     n<id>       the grant ID of the entry after
--     l           LATCH: which latch it is, and how many count-downs it has counted
--     c<id>       a count-down that the latch has counted
--
-- BOUNDS. No lease ends before `soonest`, and none begins after `newest` (P35). So the usual step reads one grant, and not
-- thousands. A step that finds `soonest` in the past scans the grants, SCANNED at a time: see `sweep`. While the scan
-- is not over, `least` is a bound of the ends that it has seen, and `cursor` is where it goes on.
local NOBODY, ZEROS = '----------------------------------------------------------------', '0000000000000000'
local NEVER = '9000000000000000'
local R_US, SETTLE_STEPS, TICKET_STEPS, LAPSES, QUEUE_MAX = 60000000, 64, 64, 16, 10000
local REVOKE_NOTIFIED, SCANNED, AGAIN_US = 2, 512, 5000000
local sub, format, now_us = string.sub, string.format, tonumber(now)

--@open
--@grant
--@latch
--@policy
--@queue
--@expire
--@sweep
--@serve
--@round
--@replace
--@settle
--@give_back
--@save
