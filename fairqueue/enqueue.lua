-- enqueue: gives an entry its place in the queue, if it has none yet. Prepended to acquire.lua and
-- pass.lua.
--
-- left  the holder's remaining TTL, in ms
-- ttl   the waiter's TTL, in ms
--
-- The queue expires, so that dead waiters leave nothing behind. But it outlives the waiters' pauses: a
-- waiter asks again when the holder's TTL ends, and each time the queue gets its expiry again. Twice
-- the waiter's TTL, and a second where TTLs are short, are for waiters that ask late.
--
-- Returns  1: it has its place; 0: it has none
-- Must not raise an error: pass.lua has already released the lock when it calls this.
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
