-- enqueue: gives an entry its place in the queue, if it has none yet. Prepended to the scripts
-- that find a lock held.
--
-- left  the holder's remaining TTL, in ms
-- ttl   the waiter's TTL, in ms
--
-- The queue expires only after each waiter has asked again: when the holder's TTL is over, and
-- twice the waiter's own.
--
-- Returns  1: it has its place; 0: it has none. Raises no error: pass.lua has released by then
local function enqueue(queue, entry, left, ttl)
  local place = redis.pcall('LPOS', queue, entry)
  if type(place) == 'table' then return 0 end
  if not place and type(redis.pcall('RPUSH', queue, entry)) ~= 'number' then return 0 end
  local ends, last = math.max(left, 0) + 2 * ttl + 1000, redis.pcall('PTTL', queue)
  if type(last) == 'number' and last >= ends then return 1 end
  if redis.pcall('PEXPIRE', queue, string.format('%.0f', ends)) == 1 then return 1 end
  redis.pcall('LREM', queue, 0, entry) -- or it might stay for ever
  return 0
end
