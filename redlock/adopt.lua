-- adopt: extend for somebody new who brings the holder's token, which a token of his
-- own takes the place of: so on each node it can be adopted once.
--
-- KEYS[1]  the lock
-- ARGV[1]  the holder's token
-- ARGV[2]  TTL in milliseconds
-- ARGV[3]  the token that takes its place
--
-- Returns  1      adopted
--          0      it has been, by this attempt: two of the nodes are one server
--          nil    the lock is gone
--          token  another holds it
-- Errors   WRONGTYPE: nothing changed
local holder = redis.call('GET', KEYS[1])
if holder == ARGV[3] then
  return 0
end
if holder ~= ARGV[1] then
  return holder
end
redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[2])
return 1
