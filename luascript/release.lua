-- release: if the token is still the holder's, delete the lock, and publish that.
--
-- Comparing and deleting are one step. As two commands, the lock could expire and be taken in
-- between, and the DEL would free another's lock.
--
-- KEYS[1]  the lock
-- ARGV[1]  the token
-- ARGV[2]  the channel on which waiters listen
--
-- Returns  1      released
--          nil    the lock is lost
--          token  another holds it
-- Errors   WRONGTYPE: nothing changed
-- Needs no memory, so it works when Redis is out of memory.
local holder = redis.call('GETEX', KEYS[1]) -- as GET, but a replica refuses it
if holder ~= ARGV[1] then
  return holder
end
redis.call('DEL', KEYS[1])
redis.pcall('PUBLISH', ARGV[2], ARGV[1]) -- a hint: where it is forbidden, the release stands
return 1
