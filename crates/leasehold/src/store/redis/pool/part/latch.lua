-- latch: defines what is known of a latch (P44). Its field l is LATCH, and c with an ID stands for a count-down.

-- Returns the number of count-downs that are missing; nil if there is no latch.
local function latch_left(pool)
  if pool.kind == 'L' and pool.limit > 0 then
    return math.max(pool.limit - sub(read(pool, 'l'), LATCH.counted), 0)
  end
end

-- Keeps the record anew: after the creation, and after a count-down.
local function keep_latch(pool)
  pool.keep = math.max(pool.keep, now_us + sub(read(pool, 'l'), LATCH.keep) * 1000 + R_US)
end

-- Returns the end of a reply: what is missing, and which latch it is.
local function counted(pool)
  return ' ' .. format('%.0f', latch_left(pool)) .. ' ' .. sub(read(pool, 'l'), LATCH.born)
end
