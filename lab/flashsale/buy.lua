-- The whole purchase, in one step: nobody comes between the look and the write.
--
-- KEYS[1]  how many goods are left
-- KEYS[2]  the orders, a list
-- ARGV[1]  the buyer
--
-- Returns 1: sold; 0: sold out, and nothing has changed.
-- Errors, with nothing changed: KEYS[1] is no number, KEYS[2] no list.

local left = tonumber(redis.call('GET', KEYS[1]) or '0')
if not left then
  return redis.error_reply('ERR ' .. KEYS[1] .. ' is no number')
end
if left <= 0 then
  return 0
end
redis.call('RPUSH', KEYS[2], ARGV[1]) -- first: it is the one that can fail
redis.call('DECR', KEYS[1])
return 1
