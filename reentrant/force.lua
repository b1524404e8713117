-- force: an operator ends all holds of the owner that he saw, and of no successor: the
-- fence tells this tenure from a later one of the same owner. The next in the queue becomes
-- the holder, as after a release.
--
-- KEYS[1]  the lock
-- KEYS[2]  its queue
-- KEYS[3]  its fence counter
-- ARGV[1]  the owner
-- ARGV[2]  the fence
-- ARGV[3]  the channel on which waiters listen who do not queue
--
-- Returns  1      released
--          nil    nobody holds the lock
--          owner  that owner holds it, perhaps with another fence
-- Errors   WRONGTYPE, NOLOCK: nothing changed
-- Works also when Redis is out of memory: see grant_next.
local lock, err = read_lock(KEYS[1], now_ms()) -- holds.lua, which stands before this script
if err then return err end
if not lock then return nil end
if lock.owner ~= ARGV[1] or lock.fence ~= tonumber(ARGV[2]) then return lock.owner end
if not grant_next(KEYS[1], KEYS[2], KEYS[3]) then -- queue.lua, likewise
  redis.call('DEL', KEYS[1])
  redis.pcall('PUBLISH', ARGV[3], lock.owner) -- a hint: if it is forbidden, the release stands
end
return 1
