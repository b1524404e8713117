-- acquire: SET NX PX and the fence, in one step; if the lock is held, a place in the queue. A
-- joint script: for one contender, or for several that ask at the same time, each for a lock of
-- its own.
--
-- KEYS[i]        a lock; i = 1 … n
-- KEYS[n + i]    its queue
-- KEYS[2n + i]   its fence counter
-- ARGV[1]        TTL in milliseconds
-- ARGV[2]        how many fences to reserve; 0: the lock has none
-- ARGV[3]        how long a counter outlives the time that its number says, in ms; 0: for ever
-- ARGV[4]        the contender's entry in the queue, if it queues. Otherwise empty, and always empty if
--                n > 1: no two contenders have the same entry
-- ARGV[5]        1: refuse the lock if the ACL forbids its release, or the wait for it
-- ARGV[5 + i]    a contender's token
-- ARGV[7]        n = 1: there if the contender has asked with this entry before
--
-- Returns  the fence (an integer; 0 without fences): granted, with one fence
--          {fence, how many}: granted
--          {holder's token, its remaining TTL in ms or -1}: held
--          {holder's token, its remaining TTL, seconds, microseconds, place, before}: held; the
--            server's time; the contender's place in the queue, from 1, or 0 if it has none; 1 if it had
--            that place before, or else 0
--          for several contenders: an array with the reply to each
--          Where nobody holds the lock and others queue, they come first: "held" then names the
--          waiter that this script has made the holder.
-- Errors   WRONGTYPE, NOPERM, OOM, FENCE: this request gave the contender neither the lock nor a
--          place. The counter may have advanced, and dead waiters may have left the queue. NOPERM of GETEX,
--          where ARGV[5] is not 1 or Redis is older than 7.0: it has its place
--
-- The functions that it calls stand before it: see numbers.lua, enqueue.lua, grant.lua and each.lua.
local n, ttl, reserve, keep, entry, unproven = #KEYS / 3, ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], ARGV[5] == '1'

-- The common case: nobody holds the locks, and nobody queues. It serves all of them with few commands. It
-- leaves to acquire what it does not grant. A counter may have advanced then. That is harmless: fences rise, and
-- may leave numbers out.
local granted = {} -- the reply to each
if reserve < 2 and entry == '' and not unproven and redis.pcall('EXISTS', unpack(KEYS, 1, 2 * n)) == 0 then
  local clock, fence, lasts, expires
  if reserve == 1 then
    local now = redis.call('TIME')
    clock = now[1] .. string.sub('00000' .. now[2], -6)
    fence = tonumber(clock)
    lasts, expires = redis.pcall('MGET', unpack(KEYS, 2 * n + 1, 3 * n)), {expiry(fence, keep)}
  end

  -- Issues the next fence of a lock, and returns it. That is the clock, if the counter is behind it. A counter
  -- of 16 characters, as many as the clock has, and at least 1e15, is a fence. All others are left to acquire.
  local function issue(i)
    local counter, last = KEYS[2 * n + i], lasts[i]
    if last == false then -- there is no counter; or it is no string, which NX leaves as it is
      local first = fence + 512
      local set = redis.pcall('SET', counter, first, 'NX', expiry(first, keep))
      return set and set.ok and first
    end
    local count = tonumber(last)
    if count and #last == #clock and count >= 1e15 and count < fence then
      return redis.pcall('SET', counter, clock, unpack(expires)).ok and fence
    end
  end

  for i = 1, n do
    local first = reserve == 0 and 0 or issue(i)
    -- NX: another of them may have asked for the same lock
    local set = first and redis.pcall('SET', KEYS[i], ARGV[5 + i], 'NX', 'PX', ttl)
    if set and set.ok then granted[i] = first end
  end
end

-- All other cases, one lock at a time.
local function acquire(i)
  local lock, queue, counter, token = KEYS[i], KEYS[n + i], KEYS[2 * n + i], ARGV[5 + i]
  if unproven and redis.acl_check_cmd then -- Redis 7.0
    if not redis.acl_check_cmd('DEL', lock) then
      return redis.error_reply('NOPERM a user who may not DEL this lock cannot release it: allow this user +del')
    end
    if not redis.acl_check_cmd('GETEX', lock) then
      return redis.error_reply('NOPERM a user who may not GETEX this lock cannot wait for it: allow this user +getex')
    end
  end

  local holder, left, now
  -- Usually neither lock nor queue exists. A user who may not GET the lock could not release it: GET refuses.
  if unproven or redis.pcall('EXISTS', lock, queue) ~= 0 then
    holder = redis.call('GET', lock)
    if not holder then -- it has expired, or was deleted: no release has granted it
      holder, left, now = grant_next(lock, queue, counter, keep, entry)
    end
  end
  if holder and holder ~= token then
    left = left or redis.call('PTTL', lock)
    local held = {holder, left}
    if entry ~= '' then
      now = now or redis.call('TIME')
      held = {holder, left, tonumber(now[1]), tonumber(now[2]), enqueue(queue, entry, left, ttl, ARGV[7])}
    end
    redis.call('GETEX', lock) -- a replica refuses it: what it says may be out of date. Last: after a write the queue gets memory that there is not
    return held
  end

  local fence, reserved = 0, reserve
  if holder then -- it was granted the lock while it queued, or the reply was lost: its last fence is the counter
    if reserve > 0 then fence = tonumber(redis.call('GET', counter)) end
    if redis.call('PEXPIRE', lock, ttl) == 1 then return fence end -- 0: it has just expired
  end
  if reserve > 0 then
    local err
    fence, reserved, err = next_fences(counter, reserve, redis.call('TIME'))
    if err then return err end
    issue_fences(counter, fence, reserved, keep) -- first: if it fails, no lock is left behind
  end
  redis.call('SET', lock, token, 'PX', ttl)
  if entry ~= '' and redis.pcall('LREM', queue, 1, entry) == 1 then tell_first(queue, ttl) end
  if reserved > 1 then return {fence, reserved} end
  return fence
end

return each(n, acquire, granted)
