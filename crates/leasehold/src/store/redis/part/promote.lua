-- promote: makes the waiter `who`, with the entry `waiter`, the holder, and notifies it: it has to claim the lease (P7).
local lease_ms, claim_ms, range = sub(waiter, ENTRY.lease), sub(waiter, ENTRY.claim), sub(waiter, ENTRY.range)
if lease_ms < claim_ms then claim_ms = lease_ms end
--@mint
state, rear, id, length, since = 'P', id .. range .. sub(waiter, ENTRY.range.behind), who, claim_ms, now
local last_us = token + range - 1
-- Not at every hand-over: on a busy lock, only one hand-over in a thousand writes it.
if keep + 0 < math.max(now_us + claim_ms * 1000, last_us) + R_US then
  keep, ttl_changed = string.format('%016.0f', math.max(now_us + lease_ms * 1000, last_us) + R_US), true
end
handed, told = claim_ms, told or {}
local others = counts % 100000 > 0 and ' S D ' or counts > 0 and ' O D ' or ' N D '
local at = #told
told[at + 1] = channel
told[at + 2] = 'lh1 G ' .. who .. ' ' .. token .. ' ' .. claim_ms .. '000 ' .. now .. others .. range .. ' ' .. name
