-- inspect: who holds the lock, how often, for how long, who queues, and the last fence.
-- Changes nothing.
--
-- KEYS[1]  the lock
-- KEYS[2]  its queue
-- KEYS[3]  its fence counter
--
-- Returns  {owner, a hold's token, holds, ms until the last of them ends, fence (text), queue}
--          {nil, nil, 0, 0, last fence (text) or nil, queue}: nobody holds it
--          queue is a list of tokens, in its order
-- Errors   WRONGTYPE, NOLOCK
local now = now_ms()
local lock, err = read_lock(KEYS[1], now) -- holds.lua, which stands before this script
if err then return err end
local waiting, queue = {}, redis.pcall('LRANGE', KEYS[2], 0, -1)
for _, entry in ipairs(queue) do -- of an error, none
  local _, _, token = read_entry(entry) -- queue.lua, which stands before it, too
  if token then table.insert(waiting, token) end
end
if not lock then
  return {false, false, 0, 0, redis.call('GET', KEYS[3]), waiting}
end
local tokens = {}
for token in pairs(lock.ends) do
  table.insert(tokens, token)
end
table.sort(tokens) -- so that it is the same one each time
return {lock.owner, tokens[1], lock.count, lock.last - now, string.format('%.0f', lock.fence), waiting}
