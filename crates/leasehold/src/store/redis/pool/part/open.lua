-- open: defines `open`, which reads the record: `got` are its fields, unless it is nil. Returns a table, or a refusal,
-- which has no field `puts`.
local function open(name, id, got)
  local own = id or NOBODY
  got = got or redis.pcall('HMGET', name, 'r', 'q', 'u', 'g' .. sub(own, ID.public), 'e' .. own)
  -- A string is the record of a mutex, or is not ours: the script of a mutex knows that (P36).
  if got.err then return sub(got.err, 1, 9) == 'WRONGTYPE' and 'OTHER' or got end
  local record, queue = got[1], got[2]
  if not record and redis.call('EXISTS', name) == 1 then return 'FOREIGN hash' end
  if record and (not string.find(record, '^lh1[WSVLB]') or #record < POOL.size or queue and #queue < WAITERS.size) then
    if string.find(record, '^lh1[HPRCF]') then return 'OTHER' end
    local version = string.match(record, '^lh(%d+)')
    return version and version ~= '1' and 'NEWER ' .. version or 'FOREIGN hash'
  end
  local pool = {
    name = name, record = record, queue = queue, waiting = got[3], upgrade = got[3], asked = own,
    fields = { ['g' .. sub(own, ID.public)] = got[4], ['e' .. own] = got[5] }, entry = got[5],
    -- The prefix of the channel names of sessions: app:lh1:inbox: for the record app:lh1:{…}. No key prefix has a brace.
    inboxes = string.match(name, '^[^{]*') .. 'inbox:',
    -- Fields to write; false removes a field. Messages to publish: channel, text, channel, text.
    puts = {}, told = {}, attached = {}, rest = 'D', handed = '-',
    begins = false, kind = '', limit = 0,
    units = 0, grants = 0, last = ZEROS, soonest = NEVER, newest = ZEROS, keep = 0,
    upgradeable = '-', marked = '-', released = NOBODY, least = NEVER, cursor = '',
    -- Entries * 100000 + strict entries.
    counts = 0, head = NOBODY, tail = NOBODY, tail_ticket = ZEROS, lapses = '',
  }
--@cut
  -- The key is kept until then.
  pool.ends = math.max(pool.keep, pool.last + R_US)
  return pool
end

-- Returns a field of the hash as it will be after this step.
local function read(pool, field)
  local value = pool.puts[field]
  if value == nil then value = pool.fields[field] end
  if value == nil then
    value = redis.call('HGET', pool.name, field)
    pool.fields[field] = value
  end
  return value
end
