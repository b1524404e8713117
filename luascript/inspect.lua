-- inspect: who holds the lock, for how long, and the last fence. Changes nothing.
--
-- KEYS[1]  the lock
-- KEYS[2]  its fence counter
--
-- Returns  {holder's token or nil, remaining TTL in ms (-1: none, -2: no lock), last fence or nil}
-- Errors   WRONGTYPE
return {redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1]), redis.call('GET', KEYS[2])}
