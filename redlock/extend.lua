-- extend: count the TTL again if the token has the lock here.
--
-- It never sets a key that is gone: this node may have voted for another since. It never shortens a
-- TTL: a request may arrive after a later one that asked for more, on which the holder relies.
--
-- KEYS[1]  the lock
-- ARGV[1]  the holder's token
-- ARGV[2]  TTL in milliseconds
--
-- Returns  1      extended
--          nil    the lock is lost
--          token  another holds it
-- Errors   WRONGTYPE: nothing changed
-- Works also when Redis is out of memory.
local holder = redis.call('GETEX', KEYS[1]) -- as GET, but a replica refuses it
if holder ~= ARGV[1] then
  return holder
end
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 1
