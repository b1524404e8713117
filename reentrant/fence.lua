-- fence: a number that rises with each new owner. Stands before the scripts that issue or read it.
--
-- It is greater than every number issued before: the stored one plus one, or the server's
-- time in microseconds if that is greater. So it rises even if the stored one has expired or was lost
-- (by FLUSHALL, a restart, a fail-over), unless the server's clock is behind it. It stays below 2^53,
-- where Lua is exact, until 2255.

-- Returns the last number issued, 0 if there was none; nil and an error if the counter holds no number.
local function last_fence(counter)
  local last = redis.call('GET', counter) or '0'
  local n = string.match(last, '^%d+$') and tonumber(last)
  if n and n < 9007199254740991 then return n end
  return nil, redis.error_reply('FENCE the counter ' .. counter .. ' holds no fence: ' .. string.sub(last, 1, 50))
end

-- Issues and stores the next number: its script's first write, which fails if Redis is out
-- of memory. A number that is not used afterwards does no harm. A GET comes before the SET, because what is no
-- fence stays as it is.
--
-- The counter expires keep ms after the time that its number says, however late it is stored. So when the
-- counter is gone, the server's time is past the number, even if the clock was ahead and was set back.
-- keep is '0': for ever. time is the reply of TIME.
local function issue_fence(counter, keep, time)
  local last, err = last_fence(counter)
  if err then return nil, err end
  local fence = math.max(last + 1, time[1] * 1000000 + time[2])
  if keep == '0' then
    redis.call('SET', counter, fence)
  else
    redis.call('SET', counter, fence, 'PXAT', math.floor(fence / 1000) + keep)
  end
  return fence
end
