-- join: set the token of a lock that a quorum of the other nodes holds, where the key is free.
--
-- The guard has no veto: no lock that this node forgot can have a quorum, because this one has. But
-- the guard hears of the TTL, as of any TTL that is granted here.
--
-- KEYS[1]  the lock
-- KEYS[2]  the restart guard; absent: none
-- ARGV[1]  the holder's token
-- ARGV[2]  TTL in milliseconds
-- ARGV[3]  the longest TTL in use that the client knows of, in ms
--
-- Returns  1      joined
--          token  another's is here already, or this one (two of the nodes are one server); nothing changed
-- Errors   WRONGTYPE, READONLY, GUARD: nothing changed
--
-- It is appended to guard.lua.
local holder = redis.call('GET', KEYS[1])
if holder then
  return redis.call('GETEX', KEYS[1]) -- as GET, but a replica refuses it
end
if KEYS[2] then
  local g, err = guard(KEYS[2], ARGV[3])
  if err then return err end
  keep(KEYS[2], g)
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
