-- acquire: take the lock if nobody holds it and nobody queues for it, or hold it once more if
-- its owner asks.
--
-- KEYS[1]  the lock
-- KEYS[2]  its queue
-- KEYS[3]  its fence counter
-- ARGV[1]  the contender's owner
-- ARGV[2]  its token
-- ARGV[3]  TTL in milliseconds
-- ARGV[4]  1: only if the owner holds the lock already
-- ARGV[5]  its entry in the queue, should another hold the lock; empty: it does not queue
--
-- Returns  the fence (an integer): granted; on re-entry that of the first hold
--          {owner, ms until its last hold ends}: held by another, nothing changed
--          {owner, ms until its last hold ends, seconds, microseconds, 1}: held by another,
--            and the contender has its place; the server's time. 0 instead of 1: it has none
--          nil: nobody holds it, and ARGV[4] is 1; nothing changed
-- Where it was free and others queue, it is held by the first of them afterwards.
-- Errors   WRONGTYPE, NOLOCK, FENCE, NOPERM: nothing changed
local now = now_ms()
local lock, err = read_lock(KEYS[1], now) -- holds.lua, which stands before this script
if err then return err end
if not lock then
  if ARGV[4] == '1' then
    return nil
  end
  lock = grant_next(KEYS[1], KEYS[2], KEYS[3], ARGV[5]) -- it has lapsed: nobody has made an heir (queue.lua, likewise)
end
if lock and lock.owner ~= ARGV[1] then
  local left = lock.last - now
  if ARGV[5] == '' then
    return {lock.owner, left}
  end
  if redis.acl_check_cmd then -- Redis 7.0: make has no chance to try them
    for _, command in ipairs({'DEL', 'HDEL', 'HSET', 'PEXPIREAT'}) do
      if not redis.acl_check_cmd(command, KEYS[1]) then
        return redis.error_reply('NOPERM who cannot run ' .. command .. ' could not keep or release this lock, and so does not queue for it')
      end
    end
  end
  local time = redis.call('TIME')
  return {lock.owner, left, tonumber(time[1]), tonumber(time[2]), enqueue(KEYS[2], ARGV[5], left, ARGV[3])}
end

local ends, fence = now + ARGV[3]
if lock then -- also if it has queued, and been granted the lock meanwhile
  keep(KEYS[1], lock, ARGV[2], math.max(lock.ends[ARGV[2]] or 0, ends)) -- a token counts once; if it comes too late, so does the answer
  prune(KEYS[1], lock)
  fence = lock.fence
else
  fence, err = next_fence(KEYS[3]) -- fence.lua, likewise
  if err then return err end
  make(KEYS[1], KEYS[3], ARGV[1], ARGV[2], fence, ends)
end
if ARGV[5] ~= '' then redis.pcall('LREM', KEYS[2], 1, ARGV[5]) end
return fence
