-- cut: takes the stored texts apart.
if record then
  pool.begins, pool.kind = sub(record, POOL.version.to.limit), sub(record, POOL.kind)
  pool.limit = sub(record, POOL.limit) + 0
  pool.units, pool.grants = sub(record, POOL.units) + 0, sub(record, POOL.grants) + 0
  pool.last, pool.soonest, pool.newest = sub(record, POOL.last), sub(record, POOL.soonest), sub(record, POOL.newest)
  pool.keep, pool.released = sub(record, POOL.keep) + 0, sub(record, POOL.released)
  pool.upgradeable, pool.marked = sub(record, POOL.flags.upgradeable), sub(record, POOL.flags.marked)
  pool.least, pool.cursor = sub(record, POOL.least), sub(record, POOL.cursor)
end
if queue then
  pool.head, pool.counts, pool.tail = sub(queue, WAITERS.head), sub(queue, WAITERS.counts) + 0, sub(queue, WAITERS.tail)
  pool.tail_ticket, pool.lapses = sub(queue, WAITERS.ticket), sub(queue, WAITERS.lapses)
end
