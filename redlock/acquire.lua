-- acquire: SET NX PX on one node, which is its vote.
--
-- KEYS[1]  the lock
-- KEYS[2]  the restart guard; absent: none
-- KEYS[3]  the lock's fence counter; absent: no fences
-- ARGV[1]  the contender's token
-- ARGV[2]  TTL in milliseconds
-- ARGV[3]  the longest TTL in use that the contender knows of, in ms
--
-- Returns  1: granted. More: granted, and a TTL of so many ms is in use
--          {that number, the last fence, 1 if no later one can have been forgotten, the server's
--            time in µs, the guard's generation}: granted, with fences
--          0: this token has the key already. It is fresh, and was sent to each node once: two of
--            the nodes are one server
--          {holder's token, its remaining TTL in ms or -1, the longest TTL in use or 0}: held;
--            nothing changed but the guard
--          {'guard', why, ms until it votes, the longest TTL in use}: it does not vote yet;
--            nothing changed but the guard
-- Errors   WRONGTYPE, NOPERM, GUARD, FENCE: nothing changed but the guard
--
-- It stands behind fastpath.lua, guard.lua and vote.lua, in this order (see scripts.go).
local holder = redis.call('GET', KEYS[1])
if holder == ARGV[1] then
  return 0
end
if holder then -- a key that is there was not forgotten: the guard has no veto
  local g = KEYS[2] and guard(KEYS[2], ARGV[3])
  if g then
    pcall(keep, KEYS[2], g) -- a wait begins now, not when the lock is free; a server out of memory can reply all the same
  end
  return {holder, redis.call('PTTL', KEYS[1]), g and g.max or 0}
end
if redis.acl_check_cmd and not redis.acl_check_cmd('DEL', KEYS[1]) then -- Redis 7.0
  return redis.error_reply('NOPERM a user who may not DEL this lock could not release it: allow this user +del')
end
return vote(ARGV[1], ARGV[2], ARGV[3])
