-- acquire: SET NX PX, and the fence, in one step; where others queue, behind them.
--
-- KEYS[1]  the lock
-- KEYS[2]  its queue
-- KEYS[3]  its fence counter
-- ARGV[1]  the contender's token
-- ARGV[2]  TTL in milliseconds
-- ARGV[3]  how many fences to reserve; 0: the lock is to have none
-- ARGV[4]  its entry in the queue, should the lock be held; empty: it does not queue
--
-- Returns  the fence (an integer; 0 without fences): granted, with one fence
--          {fence, how many}: granted
--          {holder's token, its remaining TTL in ms or -1}: held, nothing changed
--          {holder's token, its remaining TTL, seconds, microseconds, 1}: held, and the
--            contender has its place; the server's time. 0 instead of 1: it has none
-- Errors   WRONGTYPE, NOPERM, FENCE: nothing changed
local holder, left, now
-- Mostly there is neither. A lock without fences is asked by GET all the same: a user who may not
-- GET could not release it, and of one with fences the counter tells so.
if ARGV[3] == '0' or redis.pcall('EXISTS', KEYS[1], KEYS[2]) ~= 0 then
  holder = redis.call('GET', KEYS[1])
  if not holder then -- it has lapsed, or is gone otherwise: nobody has made an heir
    holder, left, now = grant_next(KEYS[1], KEYS[2], KEYS[3], ARGV[4]) -- queue.lua, which stands before this script
  end
end
if holder and holder ~= ARGV[1] then
  left = left or redis.call('PTTL', KEYS[1])
  if ARGV[4] == '' then
    return {holder, left}
  end
end

if redis.acl_check_cmd and not redis.acl_check_cmd('DEL', KEYS[1]) then -- Redis 7.0
  return redis.error_reply('NOPERM whoever may not DEL this lock could not release it: allow this user +del')
end
if holder and holder ~= ARGV[1] then
  now = now or redis.call('TIME')
  return {holder, left, tonumber(now[1]), tonumber(now[2]), enqueue(KEYS[2], ARGV[4], left, ARGV[2])}
end

local many, fence = tonumber(ARGV[3]), 0
if holder then -- it has queued, and been granted the lock meanwhile: its last fence is the counter
  if many > 0 then fence = tonumber(redis.call('GET', KEYS[3])) end
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return fence
end
if many > 0 then
  local err
  fence, many, err = next_fences(KEYS[3], many, redis.call('TIME')) -- fence.lua, likewise
  if err then return err end
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
if many > 0 then issue_fences(KEYS[3], fence, many) end
if ARGV[4] ~= '' then redis.pcall('LREM', KEYS[2], 1, ARGV[4]) end
if many > 1 then return {fence, many} end
return fence
