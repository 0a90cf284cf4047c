-- expire: defines `end_lease`, which ends a lease whose time is over. `end_text` is the end, in µs.
local function end_lease(pool, field, grant, end_text)
  take_out(pool, field, grant)
  if sub(grant, GRANT.state) == 'C' then
    -- It was given back when it began to cool down (P23).
    pool.released = sub(field, FIELD.public) .. sub(grant, GRANT.nonce)
    return
  end
  -- A waiter whose claim has ended has seen this token as the highest one: the next statement has to be later (P32).
  pool.last = format('%016.0f', pool.last + 1)
  if sub(grant, GRANT.state) ~= 'P' then return end
  -- A session that let a claim run out is frozen or dead. Each of its other waiters would cost a claim (P7).
  local session, kept, lapses = sub(field, FIELD.public.session), '', pool.lapses
  for at = 1, #lapses, LAPSE.size do
    if sub(lapses, LAPSE(at).session) ~= session then kept = kept .. sub(lapses, LAPSE(at)) end
  end
  if #kept == LAPSE.size * LAPSES then kept = sub(kept, LAPSE.behind) end
  pool.lapses = kept .. session .. end_text
end
