-- acquire: SET NX PX, and the fence, in one step.
--
-- KEYS[1]  the lock
-- KEYS[2]  its fence counter; absent: no fences
-- ARGV[1]  the contender's token
-- ARGV[2]  TTL in milliseconds
--
-- Returns  the fence (an integer; 0 without fences): granted
--          {holder's token, its remaining TTL in ms or -1}: held, nothing changed
-- Errors   WRONGTYPE, NOPERM, FENCE: nothing changed
local holder = redis.call('GET', KEYS[1])
if holder then
  return {holder, redis.call('PTTL', KEYS[1])}
end

if redis.acl_check_cmd and not redis.acl_check_cmd('DEL', KEYS[1]) then -- Redis 7.0
  return redis.error_reply('NOPERM whoever may not DEL this lock could not release it: allow this user +del')
end

local fence = 0
if KEYS[2] then
  local err
  fence, err = next_fence(KEYS[2]) -- fence.lua, which stands before this script
  if err then return err end
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
if KEYS[2] then
  redis.call('SET', KEYS[2], string.format('%.0f', fence)) -- no TTL: it outlives every hold
end
return fence
