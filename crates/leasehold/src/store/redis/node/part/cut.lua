-- cut: takes the record apart. Returns a refusal if it is not a record that this version knows.
if found then
  local at = sub(found, NODE.called) == 'C' and CALLED.size or NODE.size
  local is_whole = string.find(found, '^lq1[HRCF][NOS][C-]')
--&
    and #found >= at + (sub(found, NODE.state) == 'F' and 0 or VOTE.size)
  if not is_whole then
    local version = string.match(found, '^lq(%d+)')
    return version and version ~= '1' and 'NEWER ' .. version or 'FOREIGN ' .. redis.call('TYPE', name).ok
  end
  if sub(found, NODE.keep) > now then
    state, others, highest = sub(found, NODE.state), sub(found, NODE.waiters), sub(found, NODE.highest)
    keep, released = sub(found, NODE.keep), sub(found, NODE.released)
    if at == CALLED.size then
      called, called_ticket, called_until = sub(found, CALLED.id), sub(found, CALLED.ticket), sub(found, CALLED.ends)
      -- A time in the future shows that the clock was set back. It becomes a time from now, also that of a vote below.
      if called_until - now_us > CALL_US then called_until = string.format('%016.0f', now_us + CALL_US) end
    end
    if state ~= 'F' then
      id, token, since = sub(found, VOTE(at + 1).id), sub(found, VOTE(at + 1).token), sub(found, VOTE(at + 1).since)
      length, rear = sub(found, VOTE(at + 1).length), sub(found, VOTE(at + 1).tail)
      if since > now then since = now end
      if since + length * 1000 <= now_us then state = 'F' end
    end
  end
end
