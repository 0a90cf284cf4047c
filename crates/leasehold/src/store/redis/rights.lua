#!lua flags=no-writes
-- rights: asks the server which of our commands the user may not call. Without it, a script that lacks a right would fail
-- only when it calls the command. For some rights that is the first release of a busy lock.
--
-- KEYS     none: a command names a key, but none is called
-- ARGV     one command each, its words separated by line breaks
-- RETURNS  a list: the numbers of the refused commands, from 1. Empty if the server cannot check
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
