-- acquire: take the lock if nobody holds it, or hold it once more if its owner asks.
--
-- KEYS[1]  the lock
-- KEYS[2]  its fence counter
-- ARGV[1]  the contender's owner
-- ARGV[2]  its token
-- ARGV[3]  TTL in milliseconds
-- ARGV[4]  1: only if the owner holds the lock already
--
-- Returns  the fence (an integer): granted; on re-entry that of the first hold
--          {owner, ms until its last hold ends}: held by another, nothing changed
--          nil: nobody holds it, and ARGV[4] is 1; nothing changed
-- Errors   WRONGTYPE, NOLOCK, FENCE: nothing changed
local now = now_ms()
local lock, err = read_lock(KEYS[1], now) -- holds.lua, which stands before this script
if err then return err end
if lock and lock.owner ~= ARGV[1] then
  return {lock.owner, lock.last - now}
end

local ends = now + ARGV[3]
if lock then
  keep(KEYS[1], lock, ARGV[2], math.max(lock.ends[ARGV[2]] or 0, ends)) -- a token counts once; if it comes too late, so does the answer
  prune(KEYS[1], lock)
  return lock.fence
end
if ARGV[4] == '1' then
  return nil
end

local fence
fence, err = next_fence(KEYS[2]) -- fence.lua, likewise
if err then return err end
local expiry = string.format('%.0f', ends)
-- A lock without expiry would be held for ever, so no write may fail halfway. First comes
-- the counter: should Redis be out of memory it says so now, and a number left out is
-- nothing. Then the commands that end a lock are tried on the key while it is not there,
-- where they do nothing: an ACL that forbids one of them forbids the lock. (The DEL also
-- drops holds that have lapsed.)
redis.call('SET', KEYS[2], string.format('%.0f', fence)) -- no TTL: it outlives every hold
redis.call('DEL', KEYS[1])
redis.call('HDEL', KEYS[1], 'owner')
redis.call('PEXPIREAT', KEYS[1], expiry)
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'fence', string.format('%.0f', fence), 'hold:' .. ARGV[2], expiry)
redis.call('PEXPIREAT', KEYS[1], expiry)
return fence
