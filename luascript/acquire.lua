-- acquire: if the lock is free, number the hold and set the key with its TTL, in one step.
--
-- KEYS[1]  the lock
-- KEYS[2]  its fence counter; absent: no fences
-- ARGV[1]  the contender's token
-- ARGV[2]  TTL in milliseconds
-- ARGV[3]  how long the counter outlives the time that its number says, in ms; 0: for ever
-- ARGV[4]  how many fences to reserve: the contender's process may pass the lock on as often
--
-- Returns  fence (integer; 0 without fences): granted
--          {fence, how many are reserved from it on} (integers): granted, with several fences
--          {holder's token, its remaining TTL in ms or -1}: held, nothing changed
-- Errors   WRONGTYPE, FENCE: nothing changed
local holder = redis.call('GET', KEYS[1])
if holder then
  redis.call('GETEX', KEYS[1]) -- changes nothing, and a replica refuses it: what it says may be out of date
  return {holder, redis.call('PTTL', KEYS[1])}
end
local fence, reserved, err = 0, 1
if KEYS[2] then
  fence, reserved, err = next_fences(KEYS[2], tonumber(ARGV[4]), redis.call('TIME')) -- numbers.lua
  if err then return err end
  issue_fences(KEYS[2], fence, reserved, tonumber(ARGV[3])) -- first: if it fails, no lock is left behind
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return reserved > 1 and {fence, reserved} or fence
