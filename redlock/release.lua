-- release: delete the lock if the token has it here, and notify those who wait.
--
-- KEYS[1]  the lock
-- ARGV[1]  the holder's token
-- ARGV[2]  the channel on which waiters listen; empty: nobody can be waiting for this
--
-- Returns  1      released
--          nil    the lock is lost
--          token  another holds it
-- Errors   WRONGTYPE: nothing changed
local holder = redis.call('GETEX', KEYS[1]) -- as GET, but a replica refuses it
if holder ~= ARGV[1] then
  return holder
end
redis.call('DEL', KEYS[1])
if ARGV[2] ~= '' then
  redis.pcall('PUBLISH', ARGV[2], ARGV[1]) -- a hint: if it is forbidden, the release stands
end
return 1
