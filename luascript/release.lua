-- release: make the next in the queue the holder, if the holder is who asks; if nobody
-- queues, delete the lock, and tell those who wait without. Comparing and deleting are one
-- step: between two, the lock could expire and be taken, and the DEL would free a stranger's.
--
-- KEYS[1]  the lock
-- KEYS[2]  its queue
-- KEYS[3]  its fence counter
-- ARGV[1]  the holder's token
-- ARGV[2]  the channel on which waiters listen who do not queue
-- ARGV[3]  the entry in the queue that is given up with it; empty: none
--
-- Returns  1      released
--          nil    the lock is gone
--          token  another holds it
-- Errors   WRONGTYPE: the lock is as it was
-- Works also when Redis is out of memory: see grant_next.
if ARGV[3] ~= '' then redis.pcall('LREM', KEYS[2], 0, ARGV[3]) end
local holder = redis.call('GET', KEYS[1])
if holder ~= ARGV[1] then
  return holder
end
if not grant_next(KEYS[1], KEYS[2], KEYS[3]) then -- queue.lua, which stands before this script
  redis.call('DEL', KEYS[1])
  redis.pcall('PUBLISH', ARGV[2], ARGV[1]) -- a hint: if it is forbidden, the release stands
end
return 1
