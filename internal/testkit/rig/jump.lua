-- KEYS     none: all keys of the database
-- ARGV[1]  by how much the clock jumps, in milliseconds; negative: back
-- Returns how many keys had a TTL.
local n = 0
for _, key in ipairs(redis.call('KEYS', '*')) do
  local ttl = redis.call('PTTL', key)
  if ttl >= 0 then
    redis.call('PEXPIRE', key, ttl - ARGV[1]) -- 0 and less delete it
    n = n + 1
  end
end
return n
