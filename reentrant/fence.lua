-- fence: the number of the next hold. Prepended to the scripts that grant.
--
-- Greater than every number issued before, because it is the stored one plus one;
-- greater also when the stored one was lost (FLUSHALL, a restart, a fail-over that
-- dropped it), because it is at least the server's time in microseconds, which
-- rises faster than locks are granted. Below 2^53, where Lua's numbers are exact,
-- until the year 2255.
--
-- Reads only: it is called before the first write, so that an error (WRONGTYPE, a
-- value that is no number) leaves nothing half done.
local function next_fence(counter)
  local last = redis.call('GET', counter) or '0'
  local n = string.match(last, '^%d+$') and tonumber(last)
  if not n or n >= 9007199254740991 then
    return nil, redis.error_reply('FENCE the counter ' .. counter .. ' holds no fence: ' .. string.sub(last, 1, 50))
  end
  local now = redis.call('TIME')
  return math.max(n + 1, now[1] * 1000000 + now[2])
end
