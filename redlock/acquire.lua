-- acquire: SET NX PX on one node, which is its vote.
--
-- KEYS[1]  the lock
-- KEYS[2]  the restart guard; absent: none
-- KEYS[3]  the lock's fence counter; absent: no fences
-- ARGV[1]  the contender's token
-- ARGV[2]  TTL in milliseconds
-- ARGV[3]  the longest TTL in use that the contender knows of, in ms
--
-- Returns  1: granted; more: granted, and the longest TTL in use, in ms
--          {that number, the last fence noted here, 1 if it has forgotten none, the server's time in
--            µs, the guard's generation}: granted, with fences
--          0: this token has the key already. It is fresh, and was sent to each node once: two of
--            the nodes are one server
--          {holder's token, its remaining TTL in ms or -1, the longest TTL in use or 0}: held;
--            nothing changed but the guard
--          {'guard', why, ms until it votes, the longest TTL in use}: it does not vote yet;
--            nothing changed but the guard
-- Errors   WRONGTYPE, NOPERM, READONLY, GUARD, FENCE: nothing changed but the guard
--
-- It is appended to fastpath.lua, guard.lua and vote.lua, in this order (see scripts.go).
local holder = redis.call('GET', KEYS[1])
if holder == ARGV[1] then
  redis.call('GETEX', KEYS[1]) -- changes nothing, and a replica refuses it: what it says may be out of date
  return 0
end
if holder then -- a key that is there was not forgotten: the guard has no veto
  local g = KEYS[2] and guard(KEYS[2], ARGV[3]) -- nil also after an error: it is for a free lock to report
  if g then
    pcall(keep, KEYS[2], g) -- now, so that the guard's wait starts at once; pcall, so that a server out of memory replies
  end
  redis.call('GETEX', KEYS[1]) -- as above
  return {holder, redis.call('PTTL', KEYS[1]), g and g.max or 0}
end
return vote(ARGV[1], ARGV[2], ARGV[3])
