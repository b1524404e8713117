-- rank_permit: take a permit by the order of the holders' times. (So does
-- "Redis in Action", in section 6.3.1, in a transaction.)
--
-- KEYS[1]  who holds a permit, a sorted set: each with the time at which it
--          took the permit, in ms, by its own clock
-- ARGV[1]  who I am
-- ARGV[2]  what my clock says, in ms
-- ARGV[3]  how long a permit lasts, in ms
-- ARGV[4]  how many permits there are
--
-- Returns  1  I hold a permit
--          0  all permits are taken

redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ARGV[2] - ARGV[3])
redis.call('ZADD', KEYS[1], ARGV[2], ARGV[1])
if redis.call('ZRANK', KEYS[1], ARGV[1]) < tonumber(ARGV[4]) then
  return 1
end
redis.call('ZREM', KEYS[1], ARGV[1])
return 0
