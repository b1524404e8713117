-- extend: if the holder is who asks, count the TTL anew. Never makes a lock that is
-- gone: a node that forgot it may have voted for another meanwhile. Never shortens
-- one: a request that was stuck on its way may come after a later one that asked for
-- more, on which the holder relies.
--
-- KEYS[1]  the lock
-- ARGV[1]  its holder's token
-- ARGV[2]  TTL in milliseconds
--
-- Returns  1      extended
--          nil    the lock is gone
--          token  another holds it
-- Errors   WRONGTYPE: nothing changed
-- Needs no memory, so it works also when Redis is out of it.
local holder = redis.call('GET', KEYS[1])
if holder ~= ARGV[1] then
  return holder
end
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 1
