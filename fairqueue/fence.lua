-- fence: the numbers of the next holds. Prepended to the scripts that grant.
--
-- Greater than every number issued before, because they are the stored one plus one, and
-- so on; greater also when the stored one was lost (FLUSHALL, a restart, a fail-over that
-- dropped it), because they are at least the server's time in microseconds, which rises
-- faster than locks are granted. Below 2^53, where Lua's numbers are exact, until the year
-- 2255.
--
-- Several are reserved for holders of one process who hand the lock on among themselves,
-- so numbers run ahead of the clock, by 512 at most: a reservation beyond is cut to one.
-- Where nothing is stored, what is lost may have been ahead as far, and be in use still.
--
-- now is what TIME says. Returns the first, and how many are reserved; or nil, nil and an
-- error.
-- Reads only: it is called before the first write, so that an error (WRONGTYPE, a
-- value that is no number) leaves nothing half done.
local function next_fences(counter, many, now)
  local last = redis.call('GET', counter)
  now = now[1] * 1000000 + now[2]
  if not last then
    return now + 512, 1
  end
  local n = string.match(last, '^%d+$') and tonumber(last)
  if not n or n >= 9007199254740991 then
    return nil, nil, redis.error_reply('FENCE the counter ' .. counter .. ' holds no fence: ' .. string.sub(last, 1, 50))
  end
  local first = math.max(n + 1, now)
  if first + many > now + 512 then
    return first, 1
  end
  return first, many
end

-- Stores the last of those. No TTL: the counter outlives every hold. (Redis writes whole
-- numbers below 2^53 in full, and string.format takes longer than the SET.)
local function issue_fences(counter, first, many)
  redis.call('SET', counter, first + many - 1)
end
