-- share_write: let me write, if nobody reads or writes.
--
-- KEYS[1]  the lock, a hash: a field for each who holds it, read or write
-- ARGV[1]  who I am
-- ARGV[2]  TTL in milliseconds
--
-- Returns  1  I write
--          0  somebody reads or writes

if redis.call('EXISTS', KEYS[1]) == 1 then
  return 0
end
redis.call('HSET', KEYS[1], ARGV[1], 'write')
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
