#!lua flags=no-writes
-- Asks the server which of our commands its user may not give: a script that lacks one would say so only when it comes to
-- it, as the first release of a busy lock does.
--
-- KEYS     none: a key is only named here, and never touched
-- ARGV     one command each, its words apart by line breaks
-- RETURNS  a list: which of them are refused, counted from 1. Empty where the server cannot tell
-- EFFECTS  none
-- RETRY    safe
-- COST     no command
local refused = {}
if not redis.acl_check_cmd then return refused end
for number, command in ipairs(ARGV) do
  local words = {}
  for word in string.gmatch(command, '[^\n]+') do words[#words + 1] = word end
  if not redis.acl_check_cmd(unpack(words)) then refused[#refused + 1] = number end
end
return refused
