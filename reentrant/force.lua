-- force: an operator ends all holds of the owner that he saw, and of no successor: the
-- fence tells this tenure from a later one of the same owner.
--
-- KEYS[1]  the lock
-- ARGV[1]  the owner
-- ARGV[2]  the fence
-- ARGV[3]  the channel on which waiters listen
--
-- Returns  1      released
--          nil    nobody holds the lock
--          owner  that owner holds it, perhaps with another fence
-- Errors   WRONGTYPE, NOLOCK: nothing changed
local lock, err = read_lock(KEYS[1], now_ms()) -- holds.lua, which stands before this script
if err then return err end
if not lock then return nil end
if lock.owner ~= ARGV[1] or lock.fence ~= tonumber(ARGV[2]) then return lock.owner end
redis.call('DEL', KEYS[1])
redis.pcall('PUBLISH', ARGV[3], lock.owner) -- a hint: if it is forbidden, the release stands
return 1
