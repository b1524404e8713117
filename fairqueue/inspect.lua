-- inspect: the holder, its remaining TTL, the last fence, and the queue. Changes nothing.
--
-- KEYS[1]  the lock
-- KEYS[2]  its queue
-- KEYS[3]  its fence counter; absent: no fences
--
-- Returns  {holder's token or nil, remaining TTL in ms (-1: none, -2: no lock), last fence or nil,
--            {the tokens in the queue, in its order}}
-- Errors   WRONGTYPE: of the lock, or its counter
local fence = KEYS[3] and redis.call('GET', KEYS[3])
local waiting, queue = {}, redis.pcall('LRANGE', KEYS[2], 0, -1)
for _, entry in ipairs(queue) do -- of an error, none
  local _, _, _, token = read_entry(entry) -- queue.lua, which stands before this script
  if token then table.insert(waiting, token) end
end
return {redis.call('GETEX', KEYS[1]), redis.call('PTTL', KEYS[1]), fence or false, waiting} -- GETEX: as GET, but a replica refuses it
