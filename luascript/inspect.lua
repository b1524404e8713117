-- inspect: the holder, its remaining TTL, and the last fence. Changes nothing.
--
-- KEYS[1]  the lock
-- KEYS[2]  its fence counter; absent: no fences
--
-- Returns  {holder's token or nil, remaining TTL in ms (-1: no expiry, -2: no lock), last fence or nil}
-- Errors   WRONGTYPE
local fence = KEYS[2] and redis.call('GET', KEYS[2])
return {redis.call('GETEX', KEYS[1]), redis.call('PTTL', KEYS[1]), fence or false} -- GETEX: as GET, but a replica refuses it
