-- inspect: how many permits are taken, the hold that ends first, the last fence, and the queue. Changes nothing.
--
-- KEYS  those of acquire
--
-- Returns  {permits taken, token or nil, ms until that hold ends, last fence or nil, {the tokens in the queue, in
--            its order}}
-- Errors   WRONGTYPE, NOPERM
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local taken = redis.call('ZRANGE', KEYS[1], now, '+inf', 'BYSCORE', 'WITHSCORES') -- members, each with its score
local waiting, queue = {}, redis.pcall('LRANGE', KEYS[2], 0, -1)
for _, entry in ipairs(queue) do -- of an error, none
  local _, _, _, token = read_entry(entry) -- queue.lua
  if token then table.insert(waiting, token) end
end
return {#taken / 2, taken[1] or false, taken[2] and taken[2] - now or 0, redis.call('GET', KEYS[3]), waiting}
