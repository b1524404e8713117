-- buy: sell one, if one is left.
--
-- KEYS[1]  how many are left
-- KEYS[2]  the orders, a list
-- ARGV[1]  the buyer
--
-- Returns  1  sold
--          0  sold out: nothing has changed

local left = tonumber(redis.call('GET', KEYS[1]) or '0')
if left <= 0 then
  return 0
end
redis.call('DECR', KEYS[1])
redis.call('RPUSH', KEYS[2], ARGV[1])
return 1
