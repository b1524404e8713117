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
-- release_fast.lua, which stands before this script, has set n and entry, and has found that this
-- is not the common case.

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
  if not grant_next(lock, queue, counter, tonumber(ARGV[2])) then -- grant.lua, which stands before this script
    redis.call('DEL', lock)
    redis.pcall('PUBLISH', freed, token) -- a hint: where it is forbidden, the release stands
  end
  return 1
end

return each(n, release, {}) -- each.lua
