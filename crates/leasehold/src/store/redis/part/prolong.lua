-- prolong: the short path of a renewal of one name: the grant is held, the lease keeps its length, and nobody waits. Adds
-- the reply to `answers`, or adds the name to `others`, which take the long path.
local want, answer = ARGV[2 + i], ''
local found = pcall_('GET', name)
-- An error is a table: its # is 0.
if found and #found > RECORD.short and is_early and find(found, want, 1, true) == 1 then
  if sub(want, RECORD.length.from) ~= lease then
    lease = sub(want, RECORD.length.from)
    local length_us = math.max(lease * 1000, 1)
    ended, span = format('%016.0f', now - lease * 1000), format('%016.0f', now - now % length_us)
    keep_ms = format('%.0f', 2 * lease + 60000)
  end
  local token, since = sub(found, RECORD.token), sub(found, RECORD.since)
  if since > ended then
    if since > token and since >= span and since <= now then
      redis.call('SETRANGE', name, 'RECORD.since.offset', now)
      answer = usual
    -- The time to live of a lease is long enough for a range that has been used, or was never made longer.
    elseif token < now and (sub(found, RECORD.range) <= '00001024' or token + sub(found, RECORD.range) <= now + 0) then
      redis.call('SETRANGE', name, 'RECORD.since.offset', now)
      redis.call('PEXPIRE', name, keep_ms)
      answer = usual
    end
  end
end
answers[i] = answer
if answer == '' then others[#others + 1], texts[i] = i, found end
