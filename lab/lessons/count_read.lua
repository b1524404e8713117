-- count_read: count one more reader, if nobody writes.
--
-- KEYS[1]  the lock, a hash: readers, how many read, and writer, who writes
--
-- Returns  the count  I read
--          0          somebody writes

if redis.call('HEXISTS', KEYS[1], 'writer') == 1 then
  return 0
end
return redis.call('HINCRBY', KEYS[1], 'readers', 1)
