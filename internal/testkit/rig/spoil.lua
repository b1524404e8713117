-- KEYS[1]  the key to spoil
-- Returns 1.
redis.call('DEL', KEYS[1])
return redis.call('RPUSH', KEYS[1], 'spoilt')
