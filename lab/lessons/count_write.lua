-- count_write: let me write, if nobody reads or writes.
--
-- KEYS[1]  the lock, a hash: readers, how many read, and writer, who writes
-- ARGV[1]  who I am
-- ARGV[2]  TTL in milliseconds
--
-- Returns  1  I write
--          0  somebody reads or writes

if tonumber(redis.call('HGET', KEYS[1], 'readers') or 0) > 0 or
    redis.call('HEXISTS', KEYS[1], 'writer') == 1 then
  return 0
end
redis.call('HSET', KEYS[1], 'writer', ARGV[1])
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
