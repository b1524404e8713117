-- acquire: SET NX PX on one node, which is one vote.
--
-- KEYS[1]  the lock
-- ARGV[1]  the contender's token
-- ARGV[2]  TTL in milliseconds
--
-- Returns  1: granted
--          0: this token holds the key already. It is fresh, and was sent to each node
--             once: two of the nodes are one server
--          {holder's token, its remaining TTL in ms or -1}: held, nothing changed
-- Errors   WRONGTYPE: nothing changed
local holder = redis.call('GET', KEYS[1])
if holder == ARGV[1] then
  return 0
end
if holder then
  return {holder, redis.call('PTTL', KEYS[1])}
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
