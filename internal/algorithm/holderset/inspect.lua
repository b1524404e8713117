-- inspect: how much of the lock is held, the hold that ends first, the last fence, and the queue. Changes nothing.
--
-- KEYS[1]  the lock
-- KEYS[2]  its fence counter
-- KEYS[i]  its queues
--
-- Returns  {how much is held, token or nil, ms until that hold ends, last fence or nil, {the tokens in the queues, each
--            queue in its order}}
-- Errors   WRONGTYPE, NOLOCK, NOPERM
local s, err = read_lock(KEYS[1]) -- holders.lua
if err then return err end
local held = redis.call('ZCOUNT', KEYS[1], s.now, '+inf')
local first = redis.call('ZRANGE', KEYS[1], s.now, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
local waiting, fence = {}, redis.call('GET', KEYS[2])
for i = 3, #KEYS do
  local queue = redis.pcall('LRANGE', KEYS[i], 0, -1)
  for _, entry in ipairs(queue) do -- of an error, none
    local _, _, _, token = read_entry(entry) -- queue.lua
    if token then table.insert(waiting, token) end
  end
end
assert_primary(KEYS[1])
return {held, first[1] and token_of(first[1]) or false, first[1] and first[2] - s.now or 0, fence, waiting}
