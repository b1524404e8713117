-- ask: one server's vote, and the greatest fence that was noted there.
-- It counts nothing.
--
-- KEYS[1]  the lock
-- KEYS[2]  the fence
-- ARGV[1]  a token
-- ARGV[2]  TTL in milliseconds
--
-- Returns  the fence, 0 if there is none yet: the lock is the token's, here
--          -1: the lock is another's

if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  return tonumber(redis.call('GET', KEYS[2]) or 0)
end
return -1
