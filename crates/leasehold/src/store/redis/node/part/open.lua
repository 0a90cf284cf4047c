-- open: reads the record. Takes `name`, the key, and `found`, the result of GET; and the locals of the clock. Returns a
-- refusal, or sets the locals below. A vote that has ended is read as free.
--
-- The shared parts are put into each script as text, and come after its short path: see redis/part/open.lua.
--
-- THE RECORD is a string of fixed-width fields: first NODE; then CALL if a waiter is called; then VOTE unless the vote is
-- free. The layouts are in redis/layout.rs, and docs/PROTOCOL.md has them as tables.
--
-- THE QUEUE is a sorted set under another key: by ticket, which is the same on all nodes, and by grant ID if tickets are
-- equal. A member is a grant ID, and s or r for its order (MEMBER). No node is part of a cluster, so a script makes the key
-- of the queue from that of the record. It reads the queue only if the record says that somebody waits, and before the
-- first waiter enters. If the two disagree (the server evicted one, or somebody deleted it), the queue counts.
--
-- Both keys end when the record may be forgotten.
local NOBODY, ZEROS = '----------------------------------------------------------------', '0000000000000000'
local R_US, SETTLE_STEPS, QUEUE_MAX, CALL_US, LEAD_US, SPARE_US = 60000000, 64, 10000, 1000000, 1000000, 1000000
local REVOKE_NOTIFIED = 2
local sub, now_us = string.sub, tonumber(now)
-- An error is a table: its # is 0.
if found and #found == 0 then
  return found.err and sub(found.err, 1, 9) ~= 'WRONGTYPE' and found or 'FOREIGN ' .. redis.call('TYPE', name).ok
end
local state, others, highest, keep, released = 'F', 'N', ZEROS, ZEROS, NOBODY
-- `rear` is the number of tokens, and the label with its length. `called` is nil if no waiter is called.
local id, token, since, length, rear = NOBODY, ZEROS, ZEROS, '00000000', '00000000000'
local called, called_ticket, called_until
--@cut
--@queue
-- `head`: the first waiter, if it was read. `has_called`: C if this script has called a waiter. `told`: messages to
-- publish: channel, text, channel, text. `notice`: see next.lua.
local head, head_ticket, has_called, told, is_queue_new, notice = nil, nil, '-', nil, false, nil
