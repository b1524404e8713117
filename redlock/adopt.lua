-- adopt: replace the holder's token by that of an adopter, which brings the holder's token. So on each
-- node a token can be adopted once. It counts as a vote. A node that forgot an
-- adoption (an AOF that ends early) shows the old token again, so the guard has a veto here, too.
-- Waiters are notified, because they wait for the release of the token that they know.
--
-- KEYS[1]  the lock
-- KEYS[2]  the restart guard; absent: none
-- KEYS[3]  the lock's fence counter; absent: no fences
-- ARGV[1]  the holder's token
-- ARGV[2]  TTL in milliseconds
-- ARGV[3]  the token that takes its place
-- ARGV[4]  the longest TTL in use that the client knows of, in ms
-- ARGV[5]  the channel on which waiters listen
--
-- Returns  1 or more, {number, …}, {'guard', …}: as acquire
--          0      this attempt has adopted it here: two of the nodes are one server
--          nil    the lock is lost
--          token  another holds it
-- Errors   WRONGTYPE, NOPERM, READONLY, GUARD, FENCE: nothing changed but the guard
--
-- It is appended to guard.lua and vote.lua.
local holder = redis.call('GET', KEYS[1])
if holder ~= ARGV[1] then
  redis.call('GETEX', KEYS[1]) -- changes nothing, and a replica refuses it: what it says may be out of date
  return holder == ARGV[3] and 0 or holder
end
local reply = vote(ARGV[3], ARGV[2], ARGV[4])
if redis.call('GET', KEYS[1]) == ARGV[3] then
  redis.pcall('PUBLISH', ARGV[5], ARGV[1]) -- a hint: if it is forbidden, the adoption stands
end
return reply
