-- inspect: how many hold the lock, the hold that ends first, the last fence, and the queue. Changes nothing.
--
-- KEYS  those of acquire
--
-- Returns  {how many hold it, token or nil, ms until that hold ends, last fence or nil, {the tokens of the readers
--            that wait, in their order, and then of the writers}}
-- Errors   WRONGTYPE, NOPERM, NOLOCK
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local holds = redis.call('ZRANGE', KEYS[1], now, '+inf', 'BYSCORE', 'WITHSCORES') -- members, each with its score
local token = holds[1] and (string.match(holds[1], '^read:(.*)$') or string.match(holds[1], '^write:(.*)$'))
if holds[1] and not token then return redis.error_reply('NOLOCK the key ' .. KEYS[1] .. ' holds no read-write lock') end
local waiting = {}
for i = 2, 3 do
  local queue = redis.pcall('LRANGE', KEYS[i], 0, -1)
  for _, entry in ipairs(queue) do -- of an error, none
    local _, _, _, waiter = read_entry(entry) -- queue.lua
    if waiter then table.insert(waiting, waiter) end
  end
end
return {#holds / 2, token or false, holds[2] and holds[2] - now or 0, redis.call('GET', KEYS[4]), waiting}
