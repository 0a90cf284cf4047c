-- cut: takes the stored texts apart. Returns a refusal if they are not a record that this version knows.
if text then
  state = string.match(text, '^lh1([HPRCF])')
  if not state or #text < RECORD.size or is_hash and (not queue or #queue < QUEUE.size) then
    local version = string.match(text, '^lh(%d+)')
    return version and version ~= '1' and 'NEWER ' .. version or 'FOREIGN ' .. redis.call('TYPE', name).ok
  end
  token, id, length, since = sub(text, RECORD.token), sub(text, RECORD.id),
--&
    sub(text, RECORD.length), sub(text, RECORD.since)
  rear = sub(text, RECORD.rear)
  if is_hash then
    keep, head, counts = sub(queue, QUEUE.keep), sub(queue, QUEUE.head), tonumber(sub(queue, QUEUE.counts))
    tail_ticket, tail, lapses = sub(queue, QUEUE.ticket), sub(queue, QUEUE.tail), sub(queue, QUEUE.lapses)
  end
end
