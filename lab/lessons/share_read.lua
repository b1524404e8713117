-- share_read: let me read, if nobody writes, or renew that. All the readers
-- have one TTL.
--
-- KEYS[1]  the lock, a hash: a field for each who holds it, read or write
-- ARGV[1]  who I am
-- ARGV[2]  TTL in milliseconds
--
-- Returns  1  I read
--          0  somebody writes

if redis.call('HVALS', KEYS[1])[1] == 'write' then
  return 0
end
redis.call('HSET', KEYS[1], ARGV[1], 'read')
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
