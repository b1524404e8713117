-- adopt: extend for somebody new who brings a hold's token. The hold gets a token of its
-- own, so that nobody can adopt it twice, and whoever gave it up cannot release it. If it
-- is the only hold, that is a new tenure: the adopter's owner, and a new fence, so that
-- whoever gave it up cannot write after whoever took it over. If it is one of several,
-- owner and fence stay what they are, for the others.
--
-- KEYS[1]  the lock
-- KEYS[2]  its fence counter
-- ARGV[1]  the hold's token
-- ARGV[2]  TTL in milliseconds
-- ARGV[3]  the token that takes its place
-- ARGV[4]  the adopter's owner
--
-- Returns  {fence (an integer), owner}: adopted
--          nil    nobody holds the lock
--          owner  the hold is gone; that owner holds the lock
-- Errors   WRONGTYPE, NOLOCK, FENCE: nothing changed
local now = now_ms()
local lock, err = read_lock(KEYS[1], now) -- holds.lua, which stands before this script
if err then return err end
if not lock then return nil end
if not lock.ends[ARGV[1]] then return lock.owner end

local ends, owner, fence = now + ARGV[2], lock.owner, lock.fence
if lock.count == 1 then
  owner = ARGV[4]
  fence, err = next_fence(KEYS[2]) -- fence.lua, likewise
  if err then return err end
  redis.call('SET', KEYS[2], string.format('%.0f', fence)) -- first: see acquire.lua
end
redis.call('HDEL', KEYS[1], 'hold:' .. ARGV[3]) -- nothing yet: an ACL that forbids it forbids all
keep(KEYS[1], lock, ARGV[3], ends)
redis.call('HSET', KEYS[1], 'owner', owner, 'fence', string.format('%.0f', fence))
redis.call('HDEL', KEYS[1], 'hold:' .. ARGV[1])
forget(lock, ARGV[1])
redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', math.max(lock.last, ends)))
prune(KEYS[1], lock)
return {fence, owner}
