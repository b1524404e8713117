-- join: set the token of a lock that is held, elsewhere, by a majority of the nodes.
--
-- The guard has no veto: what this node may have forgotten is not what a majority has
-- granted, for that is this lock. But it hears of the TTL, as of any that is granted here.
-- Nor has the fence: this lock has its number.
--
-- KEYS[1]  the lock
-- KEYS[2]  the guard; missing: there is none
-- ARGV[1]  its holder's token
-- ARGV[2]  TTL in milliseconds
-- ARGV[3]  the longest TTL that the client knows of, in milliseconds
--
-- Returns  1      it has joined
--          token  it has another's, or this one already; nothing changed
-- Errors   WRONGTYPE, GUARD: nothing changed
local holder = redis.call('GET', KEYS[1])
if holder then
  return holder
end
if KEYS[2] then
  local g, err = guard(KEYS[2], ARGV[3]) -- guard.lua, which stands before this script
  if err then return err end
  keep(KEYS[2], g)
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
