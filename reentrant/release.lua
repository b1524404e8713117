-- release: end one hold. With the last one the lock is free, and its waiters are notified. The only hold in the hash is ended even
-- if its time has passed: nobody has taken the lock since.
-- Sent a second time it finds no such hold, and ends no other.
--
-- KEYS[1]  the lock
-- ARGV[1]  the hold's token
-- ARGV[2]  the channel on which waiters listen
--
-- Returns  1      released
--          nil    nobody holds the lock
--          owner  this hold is over; that owner holds the lock
-- Errors   WRONGTYPE, NOLOCK, NOPERM: nothing changed
-- Works also when Redis is out of memory.
local lock = read_lock(KEYS[1], ARGV[1]) -- holds.lua
if lock.err then return lock end
if not lock.holds[ARGV[1]] then return who_holds(KEYS[1], lock) end

if lock.count > 1 then
  end_hold(KEYS[1], lock, ARGV[1])
else
  redis.call('DEL', KEYS[1])
  redis.pcall('PUBLISH', ARGV[2], lock.owner) -- pcall: without it waiters wake at the end of the TTL
end
return 1
