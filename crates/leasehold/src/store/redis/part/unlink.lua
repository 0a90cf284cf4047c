-- unlink: removes the entry of `asked` from the queue. Comes before any other change of the queue.
local before, next_one = asked ~= head and sub(entry, ENTRY.before), redis.call('HGET', name, 'n' .. asked)
puts = { ['e' .. asked] = false, ['n' .. asked] = false }
if before then puts['n' .. before] = next_one else head = next_one or NOBODY end
if before and next_one then
  local text = redis.call('HGET', name, 'e' .. next_one)
  puts['e' .. next_one] = sub(text, ENTRY.limit.to.lease) .. before .. sub(text, ENTRY.tail)
elseif not next_one then
  tail, tail_ticket = before or NOBODY, before and sub(redis.call('HGET', name, 'e' .. before), ENTRY.ticket) or ZEROS
end
counts = counts - (sub(entry, ENTRY.order) == 's' and 100001 or 100000)
