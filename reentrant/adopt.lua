-- adopt: replace a hold by a new one, for a caller that has its token. The old token then adopts and
-- releases nothing. If it is the only hold, the adopter becomes the owner, with a new fence, so that a
-- store refuses the holder before it. If it is one of several, owner and fence stay. Nothing is published: the
-- lock is not free, and waiters wake with the release of any owner.
--
-- KEYS[1]  the lock
-- KEYS[2]  its fence counter
-- ARGV[1]  the hold's token
-- ARGV[2]  TTL in milliseconds
-- ARGV[3]  the new token
-- ARGV[4]  the adopter's owner
-- ARGV[5]  how long the counter outlives the time that its number says, in ms; 0: for ever
--
-- Returns  {fence (an integer), owner}: adopted
--          nil    nobody holds the lock
--          owner  this hold is over; that owner holds the lock
-- Errors   WRONGTYPE, NOLOCK, FENCE, OOM, NOPERM: the holds are as they were
local lock = read_lock(KEYS[1]) -- holds.lua
if lock.err then return lock end
if not lock.holds[ARGV[1]] then return who_holds(KEYS[1], lock) end

local ends = lock.now + ARGV[2]
if lock.count == 1 then
  local fence, err = issue_fence(KEYS[2], ARGV[5], lock.time) -- fence.lua
  if err then return err end
  prove('HDEL', KEYS[1], 'hold:') -- who may not end the old hold makes no new one
  write(KEYS[1], lock, ends, 'owner', ARGV[4], 'fence', fence, 'hold:' .. ARGV[3], ends)
  redis.call('HDEL', KEYS[1], 'hold:' .. ARGV[1])
  return {fence, ARGV[4]}
end
keep(KEYS[1], lock, ARGV[3], ends)
end_hold(KEYS[1], lock, ARGV[1])
return {lock.fence, lock.owner}
