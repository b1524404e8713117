-- count_unlock: count one less if it is mine; at 0 the lock is free.
--
-- KEYS[1]  the lock, a hash: owner, and count
-- ARGV[1]  who I am
--
-- Returns  the count  what is left; 0: the lock is free
--          -1         it is another's, or nobody's: it is as it was

if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then
  return -1
end
local count = redis.call('HINCRBY', KEYS[1], 'count', -1)
if count == 0 then
  redis.call('DEL', KEYS[1])
end
return count
