-- force: end all holds of the owner that an operator has seen. The fence tells them from
-- later ones of the same owner, which stay.
--
-- KEYS[1]  the lock
-- ARGV[1]  the owner
-- ARGV[2]  the fence
-- ARGV[3]  the channel on which waiters listen
--
-- Returns  1      released
--          nil    nobody holds the lock
--          owner  that owner holds the lock; it may be the same, with another fence
-- Errors   WRONGTYPE, NOLOCK, NOPERM: nothing changed
-- Works also when Redis is out of memory.
local lock = read_lock(KEYS[1]) -- holds.lua
if lock.err then return lock end
if lock.count == 0 or lock.owner ~= ARGV[1] or lock.fence ~= tonumber(ARGV[2]) then return who_holds(KEYS[1], lock) end
redis.call('DEL', KEYS[1])
redis.pcall('PUBLISH', ARGV[3], lock.owner) -- as in release
return 1
