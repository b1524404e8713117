-- adopt: give the hold to the caller that has the holder's token. The hold gets a new token and a new
-- fence. The old token then adopts, extends and releases nothing, and a store that checks fences
-- refuses its writes. Waiters are notified, because they wait for the release of the token that they know.
--
-- KEYS[1]  the lock
-- KEYS[2]  its fence counter; absent: no fences
-- ARGV[1]  the holder's token
-- ARGV[2]  the new token
-- ARGV[3]  TTL in milliseconds
-- ARGV[4]  how long the counter outlives the time that its number says, in ms; 0: for ever
-- ARGV[5]  the channel on which waiters listen
--
-- Returns  fence (integer; 0 without fences): adopted
--          nil    the lock is lost
--          token  another holds it
-- Errors   WRONGTYPE, FENCE: nothing changed
local holder = redis.call('GET', KEYS[1])
if holder ~= ARGV[1] then
  return redis.call('GETEX', KEYS[1]) -- as GET, but a replica refuses it
end
local fence, reserved, err = 0
if KEYS[2] then
  fence, reserved, err = next_fences(KEYS[2], 1, redis.call('TIME')) -- numbers.lua
  if err then return err end
  issue_fences(KEYS[2], fence, reserved, tonumber(ARGV[4]))
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
redis.pcall('PUBLISH', ARGV[5], ARGV[1]) -- pcall: without it waiters wake at the end of the TTL
return fence
