-- record.lua: what every script knows of a record that may have a queue. It is put in where a script says so, *after*
-- the fast way, which has returned by then: making these functions at each call is not free.
--
-- THE RECORD, while nobody waits, is a string of fixed-width fields, so that no script formats or parses a number that
-- it does not need:
--
--     1-3    magic and version of the layout: lh1
--     4      state: H held, P pushed and not yet claimed, R marked for revocation, F free
--     5-20   token
--     21-84  grant id; in state F the one that was released last, or 64 dashes
--     85-92  length of the lease in ms
--     93-108 since: when the grant was made or last renewed, in µs
--     109-172 grant id that was released last before this grant, or 64 dashes; in state F it means nothing
--     173-   label
--
-- With the first waiter it becomes a hash, whose queue is a linked list: leave, look and hand-over cost the same with
-- ten waiters and with ten thousand. The last one out turns it back.
--
--     r      the string from above
--     m      1-5 entries, 6-10 strict ones, 11-26 kept until (µs), 27-90 head, 91-154 tail, 155-170 ticket of the tail
--     z      lapses, oldest first, 48 bytes each: session, when its claim ran out (16)
--     e<id>  1-16 ticket, 17-24 lease, 25-32 claim, 33-48 time limit (0: none), 49-64 last seen, 65 L listens or P polls,
--            66 s strict or r relaxed, 67-130 the entry before (of the head: means nothing), 131- label
--     n<id>  the entry after
--
-- The key's time to live ends when the record may be forgotten: at the later of `kept until` and token + R. A string does
-- not say `kept until`: nothing reads it before it is set anew.
--
-- EFFECTS of a script that uses this: it validates and decides first, then `finish` writes, then publishes, by pcall: an
-- error leaves the record as it was, and a message that cannot be published is one that was lost (P5, P8).
--
-- A script declares `now` before, by clock.lua: TIME is called once.
local NOBODY, ZEROS = string.rep('-', 64), '0000000000000000'
local R_MS, R_US, SETTLE_STEPS, TICKET_STEPS, LAPSES, QUEUE_MAX = 60000, 60000000, 64, 64, 16, 10000
local call, sub, number, format = redis.call, string.sub, tonumber, string.format
local now_us = number(now)

local key, shape, record, meta                                 -- what there is: 'string', 'hash' or 'none'
local state, token, id, length, since, prev, label             -- the record
local count, strict, keep, head, tail, tail_ticket             -- the queue
local lapses, lapses_found
local entries, after                                           -- what was read of the entries, false: no such entry
local puts, drops, ttl_changed                                 -- what to write
local told, rest, handed                                       -- what to say

-- The channel of a session: app:lh1:inbox:… for the record app:lh1:{…}. No prefix has a brace.
local function inbox(session) return string.match(key, '^[^{]*') .. 'inbox:' .. session end

local function digits(us) return format('%016.0f', us) end

-- Reads the record. `text` is the string, if the script has it already, or what it got instead of one; `asked` is an id
-- whose entry matters, or ''.
-- Answers nil, or what the script shall answer instead of going on.
local function open(name, text, asked)
  key, shape, meta, lapses = name, 'string', nil, ''
  count, strict, keep, head, tail, tail_ticket = 0, 0, nil, NOBODY, NOBODY, ZEROS
  entries, after, puts, drops, ttl_changed = {}, {}, {}, {}, false
  told, rest, handed = {}, 'D', '-'
  if not text or #text == 0 then
    local found = redis.pcall('HMGET', key, 'r', 'm', 'z', 'e' .. asked, 'n' .. asked)
    if not found.err then
      text, meta, lapses, shape = found[1], found[2], found[3] or '', 'hash'
      entries[asked], after[asked] = found[4], found[5]
    elseif sub(found.err, 1, 9) == 'WRONGTYPE' then
      text = redis.pcall('GET', key)
      if type(text) == 'table' then return 'FOREIGN ' .. call('TYPE', key).ok end
    else
      return found
    end
  end
  if not text then
    if call('EXISTS', key) == 1 then return 'FOREIGN hash' end
    shape, state, token, id, length, since, prev, label = 'none', 'F', ZEROS, NOBODY, '00000000', ZEROS, NOBODY, ''
    return nil
  end
  local version = string.match(text, '^lh(%d+)')
  if version and version ~= '1' then return 'NEWER ' .. version end
  state = sub(text, 4, 4)
  if not version or #text < 172 or not string.find('HPRF', state, 1, true) then return 'FOREIGN ' .. shape end
  record, token, id, length = text, sub(text, 5, 20), sub(text, 21, 84), sub(text, 85, 92)
  since, prev, label = sub(text, 93, 108), sub(text, 109, 172), sub(text, 173)
  lapses_found = lapses
  if shape == 'hash' then
    if not meta or #meta ~= 170 then return 'FOREIGN hash' end
    count, strict, keep = number(sub(meta, 1, 5)), number(sub(meta, 6, 10)), sub(meta, 11, 26)
    head, tail, tail_ticket = sub(meta, 27, 90), sub(meta, 91, 154), sub(meta, 155)
  end
  return nil
end

local function end_us() return number(since) + number(length) * 1000 end

local function left()
  if state == 'F' then return '0' end
  return format('%.0f', math.max(end_us() - now_us, 0))
end

local function released() return state == 'F' and id or prev end

local function contention() return strict > 0 and 'S' or count > 0 and 'O' or 'N' end

local function keep_until(us) keep, ttl_changed = digits(us), true end

local function entry(who)
  if entries[who] == nil then
    local found = call('HMGET', key, 'e' .. who, 'n' .. who)
    entries[who] = found[1]
    -- Its link may have been written in this step already.
    if after[who] == nil then after[who] = found[2] end
  end
  return entries[who], after[who]
end

local function put(who, text)
  entries[who], puts['e' .. who] = text, text
end

local function link(who, to)
  after[who], puts['n' .. who] = to, to
end

local function drop(who)
  entries[who], after[who], puts['e' .. who], puts['n' .. who] = false, false, nil, nil
  drops[#drops + 1] = 'e' .. who
  drops[#drops + 1] = 'n' .. who
end

-- Takes an entry out of the list. The head's own link back means nothing, so that taking the head touches nobody else.
local function unlink(who)
  local text, next_one = entry(who)
  local before = who ~= head and sub(text, 67, 130)
  if not before then
    head = next_one or NOBODY
  elseif next_one then
    link(before, next_one)
    local neighbour = entry(next_one)
    put(next_one, sub(neighbour, 1, 66) .. before .. sub(neighbour, 131))
  else
    entry(before)
    after[before], puts['n' .. before] = false, nil
    drops[#drops + 1] = 'n' .. before
  end
  if who == tail then
    tail = before or NOBODY
    tail_ticket = before and sub(entry(before), 1, 16) or ZEROS
  end
  count = count - 1
  if sub(text, 66, 66) == 's' then strict = strict - 1 end
  drop(who)
  return text
end

-- Makes a grant. The token follows the clock, and never falls when that steps back.
local function grant(who, how, span, name)
  prev = released()
  if now > token then
    token = now
  else
    token, ttl_changed = digits(number(token) + 1), true
  end
  state, since, id, length, label = how, now, who, span, name
end

-- Whether an entry may be granted. Attachment is asked for, never found out by publishing: a pattern subscriber makes
-- PUBLISH count 1 for a dead inbox, and in a cluster 0 can mean delivered: skipping then makes two holders (P6).
local function alive(who, text)
  local limit, session = sub(text, 33, 48), sub(who, 1, 32)
  if limit ~= ZEROS and limit <= now then return false end
  for at = 1, #lapses, 48 do
    if sub(lapses, at, at + 31) == session and sub(text, 49, 64) < sub(lapses, at + 32, at + 47) then return false end
  end
  if sub(text, 65, 65) == 'L' then return call('PUBSUB', 'NUMSUB', inbox(session))[2] > 0 end
  local floor_ms = math.min(math.floor(number(sub(text, 17, 24)) / 3), 5000)
  return number(sub(text, 49, 64)) + 3 * floor_ms * 1000 > now_us
end

local function hand_over()
  local looked_at = 0
  while count > 0 do
    if looked_at == SETTLE_STEPS then
      rest = 'M'
      return
    end
    looked_at = looked_at + 1
    local who = head
    local text = unlink(who)
    if alive(who, text) then
      local lease, claim = sub(text, 17, 24), sub(text, 25, 32)
      if lease < claim then claim = lease end
      grant(who, 'P', claim, sub(text, 131))
      -- Not at every hand-over: on a busy lock this is a write in a thousand.
      if number(keep) < now_us + number(claim) * 1000 + R_US then keep_until(now_us + number(lease) * 1000 + R_US) end
      handed = claim
      told[#told + 1] = sub(who, 1, 32)
      told[#told + 1] = 'lh1 G ' .. who .. ' ' .. token .. ' ' .. claim .. '000 ' .. now .. ' ' .. contention() .. ' D ' .. key
      return
    end
  end
end

-- P1, the step within every step: ends what has ended, and hands a free lease to the next live waiter.
local function settle()
  if state ~= 'F' and end_us() <= now_us then
    if state == 'P' then
      -- Whoever let a claim run out is frozen or dead: its other waiters would each cost a claim (P7).
      local session, kept = sub(id, 1, 32), ''
      for at = 1, #lapses, 48 do
        if sub(lapses, at, at + 31) ~= session then kept = kept .. sub(lapses, at, at + 47) end
      end
      if #kept == 48 * LAPSES then kept = sub(kept, 49) end
      lapses = kept .. session .. digits(end_us())
    end
    state, id = 'F', prev
  end
  if state == 'F' and count > 0 then hand_over() end
  if count == 0 then lapses = '' end
end

-- Ends the grant at its holder's word. Who comes next is settled in the same step.
local function give_back()
  local ended = number(length)
  state = 'F'
  settle()
  if state == 'F' and count == 0 and ended > R_MS then keep_until(now_us + R_US) end
end

local function ttl_ms()
  -- At least 1: a time to live of 0 deletes the key.
  return math.max(math.ceil((math.max(number(keep), number(token) + R_US) - now_us) / 1000), 1)
end

local function save_string(text)
  if shape == 'string' and text == record and not ttl_changed then return end
  if ttl_changed then
    call('SET', key, text, 'PX', ttl_ms())
  else
    call('SET', key, text, 'KEEPTTL')
  end
end

-- HDEL comes first: an entry that was found dead may have joined again in the same step.
local function save_hash(text)
  local queue = format('%05d%05d', count, strict) .. keep .. head .. tail .. tail_ticket
  local sets = { 'HSET', key }
  if text ~= record or shape ~= 'hash' then sets[3], sets[4] = 'r', text end
  if queue ~= meta then puts.m = queue end
  if lapses ~= lapses_found then
    if lapses == '' then drops[#drops + 1] = 'z' else puts.z = lapses end
  end
  for field, value in pairs(puts) do
    local at = #sets
    sets[at + 1], sets[at + 2] = field, value
  end
  if shape == 'string' then call('DEL', key) end
  if #drops > 0 then call('HDEL', key, unpack(drops)) end
  if #sets > 2 then call(unpack(sets)) end
  if ttl_changed then call('PEXPIRE', key, ttl_ms()) end
end

-- Writes, then publishes. A name that was never granted leaves nothing behind.
local function save()
  local text = 'lh1' .. state .. token .. id .. length .. since .. prev .. label
  if count > 0 then
    save_hash(text)
  elseif shape ~= 'none' or state ~= 'F' then
    save_string(text)
  end
  for at = 1, #told, 2 do
    redis.pcall('PUBLISH', inbox(told[at]), told[at + 1])
  end
end

-- Writes, and says: the word, server time, highest token, who else waits, whether to settle again, the claim of whoever
-- was granted here, and what belongs to the word.
local function finish(word, more)
  save()
  local said = word .. ' ' .. now .. ' ' .. token .. ' ' .. contention() .. ' ' .. rest .. ' ' .. handed
  return more and said .. ' ' .. more or said
end
