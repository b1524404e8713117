-- inspect: the holder's token here, and for how long. Changes nothing.
--
-- KEYS[1]  the lock
-- KEYS[2]  its fence counter; absent: no fences
--
-- Returns  {holder's token or nil, remaining TTL in ms (-1: none, -2: no lock), the last fence
--            noted here or 0}
-- Errors   WRONGTYPE
local last = KEYS[2] and tonumber(redis.call('HGET', KEYS[2], 'n') or 0)
return {redis.call('GETEX', KEYS[1]), redis.call('PTTL', KEYS[1]), last or 0} -- GETEX: as GET, but a replica refuses it
