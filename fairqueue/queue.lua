-- queue: the queue of a lock, and how the first waiter in it becomes the holder. Prepended,
-- after fence.lua, to the scripts that end a hold or grant one.
--
-- The queue is a list, first in, first out. Each process that waits has one entry:
--
--   line ms fences token
--
-- line    the id of the process's line of contenders
-- ms      the TTL of a direct grant
-- fences  how many fences to reserve; 0: the lock is to have none
-- token   the token that becomes the holder's
--
-- The process listens on the channel <queue>:<line>. It gets one of two messages:
--
--   grant fence fences ms seconds microseconds token   the token is the holder, for ms from
--                                                      the server's time
--   next ms                                            another is the holder, for ms unless it
--                                                      extends. The process is first in the queue
--                                                      now. If ms is 1, it has lost its place
--
-- The lock never depends on the queue. If the queue is forbidden, lost, or no list, nobody
-- queues, and waiters ask again when the holder's TTL ends.

-- Returns whether nobody listens on a channel: then the waiter has died, and is passed over.
-- A waiter that listens at another node of a cluster looks dead, too: PUBLISH reaches it and does
-- not count it. It must not hear of a grant that goes on to the next, so it is told to ask. The
-- same happens where only PUBLISH can count listeners.
local function deaf(channel)
  local there = redis.pcall('PUBSUB', 'NUMSUB', channel)[2]
  if there and there > 0 then return false end
  return redis.pcall('PUBLISH', channel, 'next 1') == 0
end

-- The direct grant: makes the first waiter that listens the holder. It stops before the entry
-- asks, which is the caller's own.
--
-- Returns  the holder's token, its TTL, the reply of TIME
--          nil  no successor: the caller deletes or overwrites the lock
local function grant_next(lock, queue, counter, asks)
  while true do
    local entry = redis.pcall('LINDEX', queue, '0')
    if type(entry) ~= 'string' or entry == asks then return nil end
    local now = redis.call('TIME') -- once: after some milliseconds at rest each call takes long
    local line, ms, many, token = string.match(entry, '^(%S+) (%d+) (%d+) (.+)$')
    local fence = 0
    if line then
      many = tonumber(many)
      if many > 0 then
        local err
        fence, many, err = next_fences(counter, many, now)
        if err then return nil end
      end
    end
    -- The first write needs no memory: after it Redis lets the others have some.
    if type(redis.pcall('LPOP', queue)) ~= 'string' then return nil end
    if line and not deaf(queue .. ':' .. line) then
      local told = string.format('grant %.0f %d %s %s %s ', fence, many, ms, now[1], now[2]) .. token
      -- Written before it is published: a waiter that hears of a grant has it. If publishing
      -- fails, the caller overwrites or deletes what is written.
      if many > 0 then issue_fences(counter, fence, many) end
      if redis.pcall('SET', lock, token, 'PX', ms).err then return nil end
      if type(redis.pcall('PUBLISH', queue .. ':' .. line, told)) ~= 'number' then
        return nil -- forbidden
      end
      local behind = redis.pcall('LINDEX', queue, 0) -- the grant is published: nothing may fail from here on
      if type(behind) == 'string' then
        redis.pcall('PUBLISH', queue .. ':' .. string.match(behind, '^%S*'), 'next ' .. ms)
      end
      return token, tonumber(ms), now
    end
  end
end
