-- open: reads the record. Takes `name`, the key, and `found`, the result of GET; and the locals of the clock. Returns a
-- refusal, or sets the locals below. A vote that has ended is read as free.
--
-- The shared parts are put into each script as text, and come after its short path: see redis/part/open.lua.
--
-- THE RECORD is a string of fixed-width fields:
--
--     1-3     magic and version of the layout: lq1
--     4       state: H held, R marked for revocation, C cooling down, F free
--     5       waiters: N nobody, O others, S the first one asks for strict order
--     6       C a waiter is called, - none is
--     7-22    the largest token for which the node has voted
--     23-38   keep: the time until which the record is kept (µs)
--     39-102  grant ID that was given back last, or 64 dashes
--     then, if a waiter is called: grant ID (64), ticket (16), end of the call (16)
--     then, unless the vote is free: grant ID (64), token (16), begin (16), length of the lease in ms (8), number of tokens
--     (8), bytes of the label (3), the label
--
-- THE QUEUE is a sorted set under another key: by ticket, which is the same on all nodes, and by grant ID if tickets are
-- equal. A member is a grant ID, and s or r for its order. No node is part of a cluster, so a script makes the key of the
-- queue from that of the record. It reads the queue only if the record says that somebody waits, and before the first
-- waiter enters. If the two disagree (the server evicted one, or somebody deleted it), the queue counts.
--
-- Both keys end when the record may be forgotten.
local NOBODY, ZEROS = '----------------------------------------------------------------', '0000000000000000'
local R_US, SETTLE_STEPS, QUEUE_MAX, CALL_US, LEAD_US, SPARE_US = 60000000, 64, 10000, 1000000, 1000000, 1000000
local REVOKE_NOTIFIED = 2
local sub, now_us = string.sub, tonumber(now)
-- An error has no length.
if found and #found == 0 then
  return found.err and sub(found.err, 1, 9) ~= 'WRONGTYPE' and found or 'FOREIGN ' .. redis.call('TYPE', name).ok
end
local state, others, highest, keep, released = 'F', 'N', ZEROS, ZEROS, NOBODY
-- `rear` is the number of tokens, and the label with its length. `called` is nil if no waiter is called.
local id, token, since, length, rear = NOBODY, ZEROS, ZEROS, '00000000', '00000000000'
local called, called_ticket, called_until
if found then
  local at = sub(found, 6, 6) == 'C' and 198 or 102
  local is_whole = string.find(found, '^lq1[HRCF][NOS][C-]') and #found >= at + (sub(found, 4, 4) == 'F' and 0 or 115)
  if not is_whole then
    local version = string.match(found, '^lq(%d+)')
    return version and version ~= '1' and 'NEWER ' .. version or 'FOREIGN ' .. redis.call('TYPE', name).ok
  end
  if sub(found, 23, 38) > now then
    state, others, highest = sub(found, 4, 4), sub(found, 5, 5), sub(found, 7, 22)
    keep, released = sub(found, 23, 38), sub(found, 39, 102)
    if at == 198 then
      called, called_ticket, called_until = sub(found, 103, 166), sub(found, 167, 182), sub(found, 183, 198)
      -- A time in the future shows that the clock was set back. It becomes a time from now, also that of a vote below.
      if called_until - now_us > CALL_US then called_until = string.format('%016.0f', now_us + CALL_US) end
    end
    if state ~= 'F' then
      id, token, since = sub(found, at + 1, at + 64), sub(found, at + 65, at + 80), sub(found, at + 81, at + 96)
      length, rear = sub(found, at + 97, at + 104), sub(found, at + 105)
      if since > now then since = now end
      if since + length * 1000 <= now_us then state = 'F' end
    end
  end
end
-- app:lq1: for the record app:lq1:{…}. No key prefix has a brace in it.
local front = string.match(name, '^[^{]*')
local queue = sub(front, 1, -2) .. 'q:' .. sub(name, #front + 1)
-- `head`: the first waiter, if it was read. `has_called`: C if this script has called a waiter. `told`: messages to
-- publish: channel, text, channel, text.
local head, head_ticket, has_called, told, is_queue_new = nil, nil, '-', nil, false
