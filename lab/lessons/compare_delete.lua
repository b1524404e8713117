-- compare_delete: delete the lock if it is mine.
--
-- KEYS[1]  the lock
-- ARGV[1]  my token
--
-- Returns  1  deleted
--          0  the lock is lost, or another's: it is as it was

if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
