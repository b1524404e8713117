-- queue: the queue of a lock, and how the first waiter in it becomes the holder. Prepended,
-- after numbers.lua, to acquire.lua, release.lua and pass.lua.
--
-- The queue is a list, first in, first out. Each process that waits has one entry:
--
--   line ms fences token
--
-- line    the id of the process's wait line
-- ms      the TTL of a direct grant
-- fences  how many fences to reserve; 0: the lock has none
-- token   the token that becomes the holder's
--
-- The process listens on the channel <queue>:<line>. It gets one of two messages:
--
--   grant fence fences ms seconds microseconds token   the token is the holder, for ms from
--                                                      the server's time
--   next ms                                            another is the holder, for ms unless it
--                                                      extends. The process is first in the queue
--                                                      now. If ms is 1: ask at once, the place may
--                                                      be lost
--
-- The lock never depends on the queue. If the queue is forbidden, or no list, nobody queues, and
-- waiters ask again when the holder's TTL ends. If it is lost, they take a new place when they ask
-- again: see enqueue.lua.

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

-- The direct grant: makes the first waiter that listens the holder. It stops at the entry own, which
-- is the caller's. After its first write it raises no error: where the queue cannot be served, a
-- release is a mere release.
--
-- keep     how long the counter is to last: the caller's, as an entry does not say it; see expiry.lua
-- Returns  the holder's token, its TTL, the reply of TIME
--          nil  no successor: the caller deletes or overwrites the lock
local function grant_next(lock, queue, counter, keep, own)
  while true do
    local entry = redis.pcall('LINDEX', queue, '0') -- a number would take longer: Redis makes a string of it
    if type(entry) ~= 'string' or entry == own then return nil end
    local now = redis.call('TIME') -- once: a call takes long on a server that has been idle for milliseconds
    local line, ms, reserve, token = string.match(entry, '^(%S+) (%d+) (%d+) (.+)$')
    local fence = 0
    if line then
      reserve = tonumber(reserve)
      if reserve > 0 then
        local err
        fence, reserve, err = next_fences(counter, reserve, now)
        if err then return nil end
      end
    end
    -- LPOP is the first write, and needs no memory. After a script's first write Redis no longer
    -- refuses its other writes when it is out of memory.
    if type(redis.pcall('LPOP', queue)) ~= 'string' then return nil end
    if line and not passed_over(queue .. ':' .. line) then
      local grant = string.format('grant %.0f %d %s %s %s ', fence, reserve, ms, now[1], now[2]) .. token
      -- Written before it is published: a waiter that hears of a grant has it.
      if reserve > 0 and not pcall(issue_fences, counter, fence, reserve, keep) then return nil end
      if redis.pcall('SET', lock, token, 'PX', ms).err then return nil end
      if type(redis.pcall('PUBLISH', queue .. ':' .. line, grant)) ~= 'number' then -- forbidden
        redis.pcall('DEL', lock) -- its holder would not know
        return nil
      end
      tell_first(queue, ms) -- the grant is published: nothing may fail from here on
      return token, tonumber(ms), now
    end
  end
end
