-- adopt: give the hold to the caller who brings the holder's token. The hold gets a new token
-- and a fence of its own. So nobody can adopt it twice, and the one who gave it up can neither
-- release it nor write after its successor.
--
-- KEYS[1]  the lock
-- KEYS[2]  its fence counter; absent: no fences
-- ARGV[1]  the holder's token
-- ARGV[2]  TTL in milliseconds
-- ARGV[3]  the token that takes its place
--
-- Returns  the fence (an integer; 0 without fences): adopted
--          nil    the lock is gone
--          token  another holds it
-- Errors   WRONGTYPE, FENCE: nothing changed
local holder = redis.call('GET', KEYS[1])
if holder ~= ARGV[1] then
  return holder
end

local fence = 0
if KEYS[2] then
  local err, _
  fence, _, err = next_fences(KEYS[2], 1, redis.call('TIME')) -- fence.lua, which stands before this script
  if err then return err end
end
redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[2])
if KEYS[2] then
  issue_fences(KEYS[2], fence, 1)
end
return fence
