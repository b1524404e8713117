-- release: end one hold. With the last, the lock is deleted, and those who wait are told;
-- otherwise the key lives exactly as long as the longest of the holds that are left.
-- A second time it finds no such hold and changes nothing: a retry ends no other hold.
--
-- KEYS[1]  the lock
-- ARGV[1]  the hold's token
-- ARGV[2]  the channel on which waiters listen
--
-- Returns  1      released
--          nil    nobody holds the lock
--          owner  the hold is gone; that owner holds the lock
-- Errors   WRONGTYPE, NOLOCK: nothing changed
-- Needs no memory, so it works also when Redis is out of it.
local lock, err = read_lock(KEYS[1], now_ms()) -- holds.lua, which stands before this script
if err then return err end
if not lock then return nil end
if not lock.ends[ARGV[1]] then return lock.owner end

forget(lock, ARGV[1])
if lock.count == 0 then
  redis.call('DEL', KEYS[1])
  redis.pcall('PUBLISH', ARGV[2], lock.owner) -- a hint: if it is forbidden, the release stands
else
  redis.call('HDEL', KEYS[1], 'hold:' .. ARGV[1])
  redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', lock.last))
  prune(KEYS[1], lock)
end
return 1
