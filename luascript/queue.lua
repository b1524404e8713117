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
--                                                      the line is first in the queue now
--
-- The lock never depends on the queue: where that is forbidden, or something else, or was
-- lost, nobody queues, and who waits asks again at the holder's TTL.

-- Makes the first in the queue whom anybody hears the holder; stops before the entry asks.
-- Who has died is deaf, and passed over: PUBLISH tells how many listen.
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
    if line then
      local told = string.format('grant %.0f %d %s %s %s ', fence, many, ms, now[1], now[2]) .. token
      -- Written before it is told: whoever hears of a grant has it. What is written to
      -- somebody deaf the next entry overwrites; or whoever called, as it would have.
      if many > 0 then issue_fences(counter, fence, many) end
      if redis.pcall('SET', lock, token, 'PX', ms).err then return nil end
      local heard = redis.pcall('PUBLISH', queue .. ':' .. line, told)
      if type(heard) ~= 'number' then return nil end -- forbidden: nobody can be told
      if heard > 0 then
        local behind = redis.call('LINDEX', queue, 0)
        if behind then
          redis.pcall('PUBLISH', queue .. ':' .. string.match(behind, '^%S*'), 'next ' .. ms)
        end
        return token, tonumber(ms), now
      end
    end
  end
end
