-- queue: makes the key of the queue from `name`, the key of the record: app:lq1q:{…} from app:lq1:{…}. No key prefix has a
-- brace in it.
local front = string.match(name, '^[^{]*')
local queue = sub(front, 1, -2) .. 'q:' .. sub(name, #front + 1)
