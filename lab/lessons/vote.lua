-- vote: one server's vote, and its number, which the server itself counts.
--
-- KEYS[1]  the lock
-- KEYS[2]  the counter
-- ARGV[1]  a token
-- ARGV[2]  TTL in milliseconds
--
-- Returns  the number, from 1: the lock is the token's, here
--          -1: the lock is another's

if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  return redis.call('INCR', KEYS[2])
end
return -1
