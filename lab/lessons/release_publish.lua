-- release_publish: delete the lock if it is mine, and tell those who wait.
--
-- KEYS[1]  the lock
-- ARGV[1]  my token
-- ARGV[2]  the channel on which they listen
--
-- Returns  1  deleted, and published
--          0  the lock is lost, or another's: nothing is done

if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
redis.call('DEL', KEYS[1])
redis.call('PUBLISH', ARGV[2], 'free')
return 1
