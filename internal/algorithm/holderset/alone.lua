-- alone: a grant of a lock that is free. It stands, after numbers.lua, before all other functions that acquire.lua needs: defining
-- those takes longer than this.
--
-- The fence is the clock, if the counter is behind it: see numbers.lua for all other cases. A counter of 16 characters, as many as
-- the clock has, and at least 1e15, is a fence. Other spellings are left to numbers.lua.
--
-- lock     its key, which is not there
-- member   becomes the holder
-- ttl      for this time, in ms
-- keep     see numbers.lua
-- Returns  the fence; nil: acquire.lua is to grant the lock, and nothing has changed
-- Raises OOM, NOPERM, READONLY: the member is no holder. The counter may have advanced, which is harmless: fences rise, and may
-- leave numbers out.
local function grant_alone(lock, member, ttl, counter, keep)
  local now, last = redis.call('TIME'), redis.pcall('GET', counter)
  local clock = now[1] .. string.sub('00000' .. now[2], -6)
  local fence, count, ends = tonumber(clock), tonumber(last), string.sub(clock, 1, -4) + ttl .. '' -- Lua makes a string of it faster than Redis
  if last == false then -- there is none
    fence = fence + 512
  elseif not (count and #last == #clock and count >= 1e15 and count < fence) then
    return nil
  end
  redis.call('SET', counter, last and clock or fence, expiry(fence, keep))
  redis.call('ZADD', lock, ends, member)
  local expires = redis.pcall('PEXPIREAT', lock, ends)
  if type(expires) == 'table' then
    redis.pcall('ZREM', lock, member) -- or it might stay for ever
    redis.call('PEXPIREAT', lock, ends) -- the same error
  end
  return fence
end
