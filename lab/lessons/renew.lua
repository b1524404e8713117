-- renew: let the lock live for another TTL if it is mine.
--
-- KEYS[1]  the lock
-- ARGV[1]  my token
-- ARGV[2]  TTL in milliseconds
--
-- Returns  1  it lives for another TTL
--          0  the lock is lost, or another's: it is as it was

if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 0
