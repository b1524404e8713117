-- pass: release, and at once acquire for the next of the same process, behind all who queue
-- already: with a line in each of two processes, each gets its turn, for one request each.
-- If the owner who releases has other holds, the lock stays theirs, and the next queues; or
-- enters, if it is of that owner.
--
-- KEYS[1]  the lock
-- KEYS[2]  its queue
-- KEYS[3]  its fence counter
-- ARGV[1]  the hold's token
-- ARGV[2]  the owner of who is next
-- ARGV[3]  its token
-- ARGV[4]  TTL in milliseconds
-- ARGV[5]  its entry in the queue
--
-- Returns  the fence (an integer): released, and granted to the next
--          {owner, ms until its last hold ends, seconds, microseconds, 1}: released; another
--            has other holds, or came first; the next has its place. 0 instead of 1: it has
--            none
--          nil    nobody holds the lock
--          owner  the hold is gone; that owner holds the lock
-- Errors   WRONGTYPE, NOLOCK, FENCE, NOPERM: the lock is as it was
-- Works also when Redis is out of memory.
local now = now_ms()
local lock, err = read_lock(KEYS[1], now) -- holds.lua, which stands before this script
if err then return err end
if not lock then return nil end
if not lock.ends[ARGV[1]] then return lock.owner end

local fence
if lock.count == 1 then
  fence, err = next_fence(KEYS[3]) -- fence.lua, likewise
  if err then return err end
end
-- What make, and this script, do once the lock is not what it was is tried before, where it
-- changes nothing: an ACL that forbids it forbids all.
redis.call('HDEL', KEYS[1], 'hold:' .. ARGV[3])
if not keep(KEYS[1], lock, ARGV[1], lock.ends[ARGV[1]]) then return nil end

local ends = now + ARGV[4]
if lock.count > 1 then
  forget(lock, ARGV[1])
  redis.call('HDEL', KEYS[1], 'hold:' .. ARGV[1])
  redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', lock.last))
  prune(KEYS[1], lock)
else
  lock = grant_next(KEYS[1], KEYS[2], KEYS[3]) -- queue.lua, likewise
  if not lock then
    make(KEYS[1], KEYS[3], ARGV[2], ARGV[3], fence, ends)
    return fence
  end
end
if lock.owner == ARGV[2] then
  keep(KEYS[1], lock, ARGV[3], ends) -- if it comes too late, so does the answer
  return lock.fence
end
local time, left = redis.call('TIME'), lock.last - now
return {lock.owner, left, tonumber(time[1]), tonumber(time[2]), enqueue(KEYS[2], ARGV[5], left, ARGV[4])}
