-- release: end one hold. With the last, the next in the queue becomes the holder; if nobody
-- queues, the lock is deleted, and those who wait without are told. Otherwise the key lives
-- exactly as long as the longest of the holds that are left. A second time it finds no such
-- hold and changes nothing: a retry ends no other hold.
--
-- KEYS[1]  the lock
-- KEYS[2]  its queue
-- KEYS[3]  its fence counter
-- ARGV[1]  the hold's token
-- ARGV[2]  the channel on which waiters listen who do not queue
-- ARGV[3]  the entry in the queue that is given up with it; empty: none
--
-- Returns  1      released
--          nil    nobody holds the lock
--          owner  the hold is gone; that owner holds the lock
-- Errors   WRONGTYPE, NOLOCK: the lock is as it was
-- Works also when Redis is out of memory: see grant_next.
if ARGV[3] ~= '' then redis.pcall('LREM', KEYS[2], 0, ARGV[3]) end
local lock, err = read_lock(KEYS[1], now_ms()) -- holds.lua, which stands before this script
if err then return err end
if not lock then return nil end
if not lock.ends[ARGV[1]] then return lock.owner end

local last = lock.last
forget(lock, ARGV[1])
if lock.count > 0 then
  redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', last)) -- no change: an ACL that forbids it forbids all
  redis.call('HDEL', KEYS[1], 'hold:' .. ARGV[1])
  redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', lock.last))
  prune(KEYS[1], lock)
elseif not grant_next(KEYS[1], KEYS[2], KEYS[3]) then -- queue.lua, likewise
  redis.call('DEL', KEYS[1])
  redis.pcall('PUBLISH', ARGV[2], lock.owner) -- a hint: if it is forbidden, the release stands
end
return 1
