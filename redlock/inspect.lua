-- inspect: who holds the lock here, and for how long. Changes nothing.
--
-- KEYS[1]  the lock
--
-- Returns  {holder's token or nil, remaining TTL in ms (-1: none, -2: no lock)}
-- Errors   WRONGTYPE
return {redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1])}
