-- fence: the number of the next hold. Prepended to acquire.lua and adopt.lua.
--
-- The fence is the counter plus one, so it is greater than every number issued before. It is
-- also at least the server's time in microseconds. So fences still rise when the counter has expired
-- or is lost (FLUSHALL, a restart, a fail-over), unless the server's clock is behind the last fence:
-- the time rises faster than locks are granted. Numbers stay below 2^53, where Lua's numbers are exact, until the year 2255.

-- Reads only. Returns
--   the fence; 0 without a counter
--   nil, error: FENCE, because the counter holds no fence
-- Raises WRONGTYPE.
local function next_fence(counter)
  if not counter then return 0 end
  local last = redis.call('GET', counter) or '0'
  local n = string.match(last, '^%d+$') and tonumber(last)
  if not n or n >= 9007199254740991 then
    return nil, redis.error_reply('FENCE the counter ' .. counter .. ' holds no fence: ' .. string.sub(last, 1, 50))
  end
  local now = redis.call('TIME')
  return math.max(n + 1, now[1] * 1000000 + now[2])
end

-- Stores the fence, if there is a counter. It expires keep ms after the time that the number says, not
-- after this moment. So the time is past the number when the counter is gone, also if the clock was
-- ahead, and is set back before that. keep is '0': for ever.
local function store_fence(counter, fence, keep)
  if not counter then return end
  if keep == '0' then
    redis.call('SET', counter, fence)
  else
    redis.call('SET', counter, fence, 'PXAT', math.floor(fence / 1000) + keep)
  end
end
