-- queue: who waits for a lock, and how the next of them becomes its holder. Prepended,
-- after fence.lua and holds.lua, to the scripts that end a hold or grant one.
--
-- The queue is a list with one entry for each line of contenders, which is a process's:
--
--   line ms length token owner
--
-- the line's id, for how long a direct grant is to be, how many bytes the token has, the
-- token of the hold, and its owner; the last two are any bytes. The line listens on the
-- channel <queue>:<line>, and is told there
--
--   grant fence 1 ms seconds microseconds token   the token has its hold, for ms from the
--                                                 server's time; it is the only one
--   next ms                                       another has, for ms unless it extends; the
--                                                 line is first in the queue now, or has lost
--                                                 its place: then ms is 1
--
-- The lock never depends on the queue: where that is forbidden, or something else, or was
-- lost, nobody queues, and who waits asks again at the holder's TTL.

-- Returns the line, ms, token and owner that an entry names; nil if it is none.
local function read_entry(entry)
  local line, ms, length, rest = string.match(entry, '^(%S+) (%d+) (%d+) (.*)$')
  if not line then return nil end
  length = tonumber(length)
  local token, owner = string.sub(rest, 1, length), string.sub(rest, length + 2)
  if token == '' or owner == '' then return nil end
  return line, ms, token, owner
end

-- Tells whether nobody listens on a channel. Who has died does not, and is no heir. Nor is who
-- listens at another node of a cluster, whom PUBLISH reaches and does not count: told of a grant
-- he would take the lock that goes on to the next. He is told to ask, which harms nobody; so is
-- everybody where only PUBLISH may tell how many listen.
local function deaf(channel)
  local there = redis.pcall('PUBSUB', 'NUMSUB', channel)[2]
  if there and there > 0 then return false end
  return redis.pcall('PUBLISH', channel, 'next 1') == 0
end

-- Makes the first in the queue who listens the holder of a lock that nobody holds any more;
-- stops before the entry asks. Nobody is told before the lock is there: an ACL may forbid it,
-- and who has been told relies on it.
--
-- Returns the lock, as read_lock does; nil: nobody holds it, though what is left of the last
-- hold may still be there.
local function grant_next(key, queue, counter, asks)
  while true do
    local entry = redis.pcall('LINDEX', queue, 0)
    if type(entry) ~= 'string' or entry == asks then return nil end
    local fence, err = next_fence(counter)
    if err then return nil end
    -- The first write needs no memory: after it Redis lets the others have some.
    if type(redis.pcall('LPOP', queue)) ~= 'string' then return nil end
    local line, ms, token, owner = read_entry(entry)
    if line and not deaf(queue .. ':' .. line) then
      local time = redis.call('TIME')
      local done, lock = pcall(make, key, counter, owner, token, fence, time[1] * 1000 + math.floor(time[2] / 1000) + ms)
      if not done then
        redis.pcall('PUBLISH', queue .. ':' .. line, 'next 1') -- it has lost its place, and asks
        return nil
      end
      local told = string.format('grant %.0f 1 %s %s %s ', fence, ms, time[1], time[2]) .. token
      if type(redis.pcall('PUBLISH', queue .. ':' .. line, told)) ~= 'number' then
        redis.call('DEL', key)
        return nil -- forbidden: nobody can be told
      end
      local behind = redis.pcall('LINDEX', queue, 0)
      if type(behind) == 'string' then
        redis.pcall('PUBLISH', queue .. ':' .. string.match(behind, '^%S*'), 'next ' .. ms)
      end
      return lock
    end
  end
end
