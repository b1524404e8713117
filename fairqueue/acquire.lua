-- acquire: SET NX PX and the fence, in one step; if the lock is held, a place in the queue. A
-- joint script: for one contender, or for several that ask at the same time, each for a lock of
-- its own.
--
-- KEYS[i]        a lock; i = 1 … n
-- KEYS[n + i]    its queue
-- KEYS[2n + i]   its fence counter
-- ARGV[1]        TTL in milliseconds
-- ARGV[2]        how many fences to reserve; 0: the lock is to have none
-- ARGV[3]        the entry in the queue, should the lock be held; empty: it does not queue
-- ARGV[4]        1: refuse the lock if the ACL would forbid its release
-- ARGV[4 + i]    a contender's token
--
-- Returns  the fence (an integer; 0 without fences): granted, with one fence
--          {fence, how many}: granted
--          {holder's token, its remaining TTL in ms or -1}: held, nothing changed
--          {holder's token, its remaining TTL, seconds, microseconds, 1}: held; the server's
--            time; the contender has its place. 0 instead of 1: it has no place
--          for several contenders: an array with the reply to each
-- Errors   WRONGTYPE, NOPERM, FENCE: nothing changed
--
-- free.lua, which stands before this script, has set n, ttl, many, entry and unproven, and has
-- granted what it could: the replies are in granted.

local function acquire(i)
  local lock, queue, counter, token = KEYS[i], KEYS[n + i], KEYS[2 * n + i], ARGV[4 + i]
  local holder, left, now
  -- Usually there is neither. A user who may not GET the lock could not release it: GET refuses.
  if unproven or redis.pcall('EXISTS', lock, queue) ~= 0 then
    holder = redis.call('GET', lock)
    if not holder then -- it has expired, or was deleted: no release has granted it
      holder, left, now = grant_next(lock, queue, counter, entry) -- queue.lua, which stands before this script
    end
  end
  if holder and holder ~= token then
    left = left or redis.call('PTTL', lock)
    if entry == '' then
      return {holder, left}
    end
  end

  if unproven and redis.acl_check_cmd and not redis.acl_check_cmd('DEL', lock) then -- Redis 7.0
    return redis.error_reply('NOPERM a user who may not DEL this lock cannot release it: allow this user +del')
  end
  if holder and holder ~= token then
    now = now or redis.call('TIME')
    return {holder, left, tonumber(now[1]), tonumber(now[2]), enqueue(queue, entry, left, ttl)}
  end

  local fence, reserved = 0, many
  if holder then -- it has queued, and been granted the lock meanwhile: its last fence is the counter
    if many > 0 then fence = tonumber(redis.call('GET', counter)) end
    redis.call('PEXPIRE', lock, ttl)
    return fence
  end
  if many > 0 then
    local err
    fence, reserved, err = next_fences(counter, many, redis.call('TIME')) -- fence.lua, likewise
    if err then return err end
  end
  redis.call('SET', lock, token, 'PX', ttl)
  if many > 0 then issue_fences(counter, fence, reserved) end
  if entry ~= '' then redis.pcall('LREM', queue, 1, entry) end
  if reserved > 1 then return {fence, reserved} end
  return fence
end

return each(n, acquire, granted) -- strategy/each.lua
