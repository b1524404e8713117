-- queue: who waits for a lock, and how the next of them becomes its holder. Prepended,
-- after fence.lua, to the scripts that end a hold or grant one.
--
-- The queue is a list with one entry for each line of contenders, which is a process's:
--
--   line ms fences token
--
-- the line's id, for how long a direct grant is to be, how many fences are to be reserved
-- (0: the lock is to have none), and the token that becomes the holder's. The line listens
-- on the channel <queue>:<line>, and is told there
--
--   grant fence fences ms seconds microseconds token   the token is the holder, for ms from
--                                                      the server's time
--   next ms                                            another is, for ms unless it extends;
--                                                      the line is first in the queue now,
--                                                      or has lost its place: then ms is 1
--
-- The lock never depends on the queue: where that is forbidden, or something else, or was
-- lost, nobody queues, and who waits asks again at the holder's TTL.

-- Tells whether nobody listens on a channel. Who has died does not, and is no heir. Nor is who
-- listens at another node of a cluster, whom PUBLISH reaches and does not count: told of a grant
-- he would take the lock that goes on to the next. He is told to ask, which harms nobody; so is
-- everybody where only PUBLISH may tell how many listen.
local function deaf(channel)
  local there = redis.pcall('PUBSUB', 'NUMSUB', channel)[2]
  if there and there > 0 then return false end
  return redis.pcall('PUBLISH', channel, 'next 1') == 0
end

-- Makes the first in the queue who listens the holder; stops before the entry asks.
--
-- Returns the holder's token, its TTL, and what TIME said; nil: nobody, and the lock is for
-- the caller to delete or overwrite.
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
      -- Written before it is told: whoever hears of a grant has it. What is written where
      -- nobody can be told, whoever called overwrites, as it would have.
      if many > 0 then issue_fences(counter, fence, many) end
      if redis.pcall('SET', lock, token, 'PX', ms).err then return nil end
      if type(redis.pcall('PUBLISH', queue .. ':' .. line, told)) ~= 'number' then
        return nil -- forbidden: nobody can be told
      end
      local behind = redis.pcall('LINDEX', queue, 0) -- it is told: nothing may fail from here on
      if type(behind) == 'string' then
        redis.pcall('PUBLISH', queue .. ':' .. string.match(behind, '^%S*'), 'next ' .. ms)
      end
      return token, tonumber(ms), now
    end
  end
end
