-- release: if the token is still the holder's, make the first in the queue the holder. If nobody
-- queues, delete the lock, and publish that. Comparing and deleting are one step: as two commands
-- the lock could expire and be taken in between, and the DEL would free another's lock.
-- A joint script: for one holder, or for several that release at the same time, each a lock of
-- its own.
--
-- KEYS[i]           a lock; i = 1 … n
-- KEYS[n + i]       its queue
-- KEYS[2n + i]      its fence counter
-- ARGV[1]           an entry to take out of the queue, in an undo. Otherwise empty, and always empty if
--                   n > 1: no two callers have the same entry
-- ARGV[2]           how long a counter outlives the time that its number says, in ms; 0: for ever
-- ARGV[2 + i]       the holder's token
-- ARGV[2 + n + i]   the channel for waiters that do not queue
--
-- Returns  1      released
--          nil    the lock is lost
--          token  another holds it
--          for several holders: an array with the reply to each
-- Errors   WRONGTYPE (the lock's key is no lock), NOPERM: the lock is as it was
-- Works also when Redis is out of memory: see grant_next.
--
-- The functions that it calls stand before it: see grant.lua and each.lua.
local n, entry = #KEYS / 3, ARGV[1]

-- The common case: all still hold their locks, and nobody queues. It serves all of them with few commands.
local answers = {}
if entry == '' then
  local holders, held = redis.pcall('MGET', unpack(KEYS, 1, n)), 0
  for i = 1, n do
    if holders[i] == ARGV[2 + i] then held = held + 1 end
  end
  local free = held == n and redis.pcall('EXISTS', unpack(KEYS, n + 1, 2 * n)) == 0
  local deleted = free and redis.pcall('DEL', unpack(KEYS, 1, n))
  if type(deleted) == 'number' then
    local released = {} -- two may release the same lock: the first has released it, the second finds none
    for i = 1, n do
      answers[i] = not released[KEYS[i]] and 1
      if deleted < n then released[KEYS[i]] = true end
      if answers[i] then redis.pcall('PUBLISH', ARGV[2 + n + i], ARGV[2 + i]) end -- a hint: where it is forbidden, the release stands
    end
  end
end

-- All other cases, one lock at a time.
local function release(i)
  local lock, queue, counter, token, freed = KEYS[i], KEYS[n + i], KEYS[2 * n + i], ARGV[2 + i], ARGV[2 + n + i]
  local first
  if entry ~= '' then
    first = redis.pcall('LINDEX', queue, '0') == entry
    redis.pcall('LREM', queue, 0, entry)
  end
  local holder = redis.pcall('GETEX', lock) -- as GET, but a replica refuses it
  if holder ~= token then -- or no lock, and holder is the error
    if first then tell_first(queue, 1) end -- it asks how long the holder has: queue.lua
    return holder
  end
  if not grant_next(lock, queue, counter, tonumber(ARGV[2])) then
    redis.call('DEL', lock)
    redis.pcall('PUBLISH', freed, token) -- a hint, likewise
  end
  return 1
end

return each(n, release, answers)
