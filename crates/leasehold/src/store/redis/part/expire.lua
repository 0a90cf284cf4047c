-- expire: ends a lease whose time is over.
if state ~= 'F' and since + length * 1000 <= now_us then
  if state == 'P' then
    -- A session that let a claim run out is frozen or dead. Each of its other waiters would cost a claim (P7).
    local session, kept = sub(id, ID.session), ''
    for at = 1, #lapses, LAPSE.size do
      if sub(lapses, LAPSE(at).session) ~= session then kept = kept .. sub(lapses, LAPSE(at)) end
    end
    if #kept == LAPSE.size * LAPSES then kept = sub(kept, LAPSE.behind) end
    lapses = kept .. session .. string.format('%016.0f', since + length * 1000)
  end
  -- A grant that cooled down was given back before, and no grant has been given back since (P23).
  state, id = 'F', state == 'C' and id or sub(rear, REAR.released)
  -- It is unknown how much of the range was used, so all of it is burnt (P19).
  if sub(rear, REAR.range) ~= '00000001' then token = string.format('%016.0f', token + sub(rear, REAR.range) - 1) end
end
