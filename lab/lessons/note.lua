-- note: have a server that voted for a token note its fence, if the lock is
-- still the token's.
--
-- KEYS[1]  the lock
-- KEYS[2]  the fence
-- ARGV[1]  the token
-- ARGV[2]  its fence
--
-- Returns  1  noted: the next client to get this server's vote learns it
--          0  the lock is lost, or another's: nothing is changed

if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
if tonumber(ARGV[2]) > tonumber(redis.call('GET', KEYS[2]) or 0) then
  redis.call('SET', KEYS[2], ARGV[2])
end
return 1
