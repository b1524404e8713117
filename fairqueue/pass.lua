-- pass: release, and acquire for the next contender of the same process, behind all that queue
-- already. So two processes with a line each take turns, with one request for each turn.
--
-- KEYS[1]  the lock
-- KEYS[2]  its queue
-- KEYS[3]  its fence counter
-- ARGV[1]  the holder's token
-- ARGV[2]  the next contender's token
-- ARGV[3]  TTL in milliseconds
-- ARGV[4]  how many fences to reserve; 0: the lock has none
-- ARGV[5]  the next contender's entry in the queue
-- ARGV[6]  how long the counter outlives the time that its number says, in ms; 0: for ever
--
-- Returns  {fence, how many}: released, and granted to the next
--          {holder's token, its TTL in ms, seconds, microseconds, place, 0}: released, granted to
--            the first in the queue; the next contender's place in the queue, from 1, or 0 if it has
--            none
--          nil    the lock is lost
--          token  another holds it
-- Errors   WRONGTYPE, NOPERM, OOM, FENCE: the lock is as it was; or free, if the grant to the first in
--            the queue could not be published
-- Never repeated: if the reply is lost, the engine releases both tokens.
local holder = redis.call('GET', KEYS[1])
if holder ~= ARGV[1] then
  return redis.call('GETEX', KEYS[1]) -- as GET, but a replica refuses it
end
local keep = tonumber(ARGV[6])
local successor, left, now = grant_next(KEYS[1], KEYS[2], KEYS[3], keep) -- grant.lua, which stands before this script
if successor then
  return {successor, left, tonumber(now[1]), tonumber(now[2]), enqueue(KEYS[2], ARGV[5], left, ARGV[3])} -- enqueue.lua, likewise
end
local reserve, fence = tonumber(ARGV[4]), 0
if reserve > 0 then
  local err
  fence, reserve, err = next_fences(KEYS[3], reserve, redis.call('TIME')) -- numbers.lua, likewise
  if err then return err end
  issue_fences(KEYS[3], fence, reserve, keep) -- first: if it fails, the lock is as it was
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return {fence, reserve}
