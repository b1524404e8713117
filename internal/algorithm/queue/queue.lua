-- queue: the queue of a lock. Prepended to the scripts that serve it.
--
-- The queue is a list, first in, first out. An entry is a process, which may have several waiters:
--
--   line ms count token
--
-- line   the id of the wait line
-- ms     the TTL of a direct grant
-- count  what is asked for: of fairqueue and of rwlock's writers, how many fences to reserve (0: the lock has none); of
--        rwlock's readers, how many holds; of semaphore, how many permits
-- token  the token that becomes the holder's
--
-- The line's process listens on the channel <queue>:<line>. It gets one of two messages:
--
--   grant fence count ms seconds microseconds token    the token is a holder, for ms from the server's time; count
--                                                      is how many fences are reserved, or of readers how many hold
--   next ms                                            the line is first in the queue now; the holder before it
--                                                      has ms unless it extends. If ms is 1: ask at once, the
--                                                      place may be lost
--
-- The lock never depends on the queue. If the queue is forbidden, or no list, nobody queues, and
-- waiters ask again when the holder's TTL ends. If it is lost, they take a new place when they ask
-- again: see enqueue.lua.

-- Returns the parts of an entry; nil if the text is no entry.
local function read_entry(entry)
  local line, ms, count, token = string.match(entry, '^(%S+) (%d+) (%d+) (.+)$')
  return line, ms, tonumber(count), token
end

-- Returns the message that the token is a holder.
local function grant_message(fence, count, ms, now, token)
  return string.format('grant %.0f %d %s %s %s ', fence, count, ms, now[1], now[2]) .. token
end

-- Returns whether nobody listens on a channel: then the waiter has died, and is passed over.
-- A waiter that listens at another node of a cluster looks dead, too: PUBLISH reaches it and does
-- not count it. It must not hear of a grant that goes on to the next, so it gets a "next 1". So does
-- a waiter where NUMSUB is forbidden, because then only PUBLISH counts listeners.
local function passed_over(channel)
  local listeners = redis.pcall('PUBSUB', 'NUMSUB', channel)[2]
  if listeners and listeners > 0 then return false end
  return redis.pcall('PUBLISH', channel, 'next 1') == 0
end

-- Notifies the first in the queue that it is first now, and that another is the holder, for ms. Every
-- script that takes the first entry out notifies the next one: the first alone watches the holder's TTL.
local function tell_first(queue, ms)
  local first = redis.pcall('LINDEX', queue, '0')
  if type(first) == 'string' then
    redis.pcall('PUBLISH', queue .. ':' .. string.match(first, '^%S*'), 'next ' .. ms)
  end
end
