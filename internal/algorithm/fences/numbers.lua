-- numbers: the numbers of the next holds. Prepended to the scripts that grant.
--
-- The first number is the stored one plus one, so it is greater than every number issued before.
-- It is also at least the server's time in microseconds, which rises faster than locks are granted. So
-- fences still rise when the counter has expired or is lost (FLUSHALL, a restart, a fail-over), unless
-- the server's clock is behind the last fence. Numbers stay below 2^53, where Lua's numbers are exact,
-- until the year 2255.
--
-- Several are reserved for holders of one process that hand the lock on among themselves, so
-- numbers run ahead of the clock. A reservation that would take them ahead by more than 512 is cut
-- to one. If nothing is stored, a lost counter may have been ahead by 512, so the first number is
-- the time plus 512.
--
-- reserve  how many
-- now      the reply of TIME
-- Returns  the first, how many are reserved
--          nil, nil, error: the counter holds no fence (FENCE), or cannot be read (WRONGTYPE, NOPERM)
-- Reads only: it is called before the first write, so an error leaves nothing half done.
local function next_fences(counter, reserve, now)
  local last = redis.pcall('GET', counter)
  if type(last) == 'table' then return nil, nil, last end
  now = now[1] * 1000000 + now[2]
  if not last then
    return now + 512, 1
  end
  local n = string.match(last, '^%d+$') and tonumber(last)
  if not n or n >= 9007199254740991 then
    return nil, nil, redis.error_reply('FENCE the counter ' .. counter .. ' holds no fence: ' .. string.sub(last, 1, 50))
  end
  local first = math.max(n + 1, now)
  if first + reserve > now + 512 then
    return first, 1
  end
  return first, reserve
end

-- Returns the options of SET for a counter that holds this fence. It expires keep ms (0: never) after the time that
-- its number says, however late it is stored. So when the counter is gone, the server's time is past the number, even
-- if the clock was ahead and was set back.
local function expiry(fence, keep)
  if keep > 0 then return 'PXAT', math.floor(fence / 1000) + keep .. '' end -- Lua makes a string of it faster than Redis
end

-- Stores the last of the numbers, before the lock is set. keep: see expiry.
-- (Redis writes whole numbers below 2^53 in full, and string.format takes longer than the SET.)
local function issue_fences(counter, first, reserved, keep)
  local last = first + reserved - 1
  redis.call('SET', counter, last, expiry(last, keep))
end
