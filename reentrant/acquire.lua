-- acquire: take the lock if nobody holds it, or hold it once more if its owner asks.
--
-- KEYS[1]  the lock
-- KEYS[2]  its fence counter
-- ARGV[1]  the contender's owner
-- ARGV[2]  its token
-- ARGV[3]  TTL in milliseconds
-- ARGV[4]  1: only if the owner holds the lock already
-- ARGV[5]  how long the counter outlives the time that its number says, in ms; 0: for ever
--
-- Returns  the fence (an integer): granted; on re-entry it is that of the first hold
--          {owner, ms until its last hold ends}: another owner holds it; nothing changed
--          nil: nobody holds it, and ARGV[4] is 1; nothing changed
-- Errors   WRONGTYPE, NOLOCK, FENCE, OOM (not on re-entry), NOPERM: no hold was made
local lock = read_lock(KEYS[1]) -- holds.lua
if lock.err then return lock end
local ends = lock.now + ARGV[3]
if lock.count > 0 then
  if lock.owner ~= ARGV[1] then
    assert_primary(KEYS[1])
    return {lock.owner, lock.last - lock.now}
  end
  keep(KEYS[1], lock, ARGV[2], ends)
  return lock.fence
end
if ARGV[4] == '1' then
  assert_primary(KEYS[1])
  return nil
end

local fence, err = issue_fence(KEYS[2], ARGV[5], lock.time) -- fence.lua
if err then return err end
if lock.owner then redis.call('DEL', KEYS[1]) end -- lapsed holds are left
prove('DEL', KEYS[1]) -- a lock that could not be released, or could not expire, is not made
prove('HDEL', KEYS[1], 'owner')
prove('PEXPIREAT', KEYS[1], ends)
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'fence', fence, 'hold:' .. ARGV[2], ends)
redis.call('PEXPIREAT', KEYS[1], ends)
return fence
