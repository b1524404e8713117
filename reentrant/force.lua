-- force: end all holds of the owner that an operator has seen. The fence tells them from
-- later ones of the same owner, which stay.
--
-- KEYS[1]  the lock
-- ARGV[1]  the owner
-- ARGV[2]  the fence
-- ARGV[3]  the channel on which waiters listen
--
-- Returns, errors, memory: as release; owner may be the same, with another fence
local lock = read_lock(KEYS[1]) -- holds.lua
if lock.err then return lock end
if lock.count == 0 then return nil end
if lock.owner ~= ARGV[1] or lock.fence ~= tonumber(ARGV[2]) then return lock.owner end
redis.call('DEL', KEYS[1])
redis.pcall('PUBLISH', ARGV[3], lock.owner) -- as in release
return 1
