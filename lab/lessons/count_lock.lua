-- count_lock: take the lock, or count one more if it is mine.
--
-- KEYS[1]  the lock, a hash: owner, and count, how often it has been taken
-- ARGV[1]  who I am
-- ARGV[2]  TTL in milliseconds
--
-- Returns  the count  it is mine, and has been taken so often
--          0          it is another's

local owner = redis.call('HGET', KEYS[1], 'owner')
if owner and owner ~= ARGV[1] then
  return 0
end
redis.call('HSET', KEYS[1], 'owner', ARGV[1])
local count = redis.call('HINCRBY', KEYS[1], 'count', 1)
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return count
