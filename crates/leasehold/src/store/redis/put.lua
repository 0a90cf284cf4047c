#!lua flags=allow-oom
-- put: changes the label of a grant: the value of a leader (P48).
--
-- KEYS     1 the record
-- ARGV     1 token (16) and grant id (64)
--          2 bytes of the label (3), and the label
-- RETURNS  PUT … | LOST … notheld
--          FOREIGN type | NEWER version
-- EFFECTS  changes the label, and nothing else of the grant; settles
-- RETRY    safe: a repeat changes nothing, and a later grant has another ID
-- COST     TIME, GET, SET; with a queue also HMGET, HSET
--@clock
local name, asked, found, got = KEYS[1], nil, redis.pcall('GET', KEYS[1]), nil
--@open
--@settle
local word, how = 'LOST', ' notheld'
if state ~= 'F' and state ~= 'C' and token .. id == ARGV[1] then
  word, how = 'PUT', ''
  rear = sub(rear, REAR.released) .. sub(rear, REAR.range) .. ARGV[2]
end
--@save
return word .. said .. how
