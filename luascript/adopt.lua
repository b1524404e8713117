-- adopt: extend for somebody new who brings the holder's token. The hold gets a
-- new fence, so that whoever gave it up cannot write after whoever took it over.
--
-- KEYS[1]  the lock
-- KEYS[2]  its fence counter; absent: no fences
-- ARGV[1]  the holder's token
-- ARGV[2]  TTL in milliseconds
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
  local err
  fence, err = next_fence(KEYS[2])
  if err then return err end
  redis.call('SET', KEYS[2], string.format('%.0f', fence))
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return fence
