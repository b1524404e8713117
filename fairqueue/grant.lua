-- grant: how the first waiter in the queue becomes the holder. Prepended, after numbers.lua and queue.lua, to
-- acquire.lua, release.lua and pass.lua.

-- The direct grant: makes the first waiter that listens the holder. It stops at the caller's
-- entry. After its first write it raises no error: where the queue cannot be served, a release is a
-- mere release.
--
-- keep     how long the counter is to last: the caller's, as an entry does not say it; see numbers.lua
-- Returns  the holder's token, its TTL, the reply of TIME
--          nil  no successor: the caller deletes or overwrites the lock
local function grant_next(lock, queue, counter, keep, caller_entry)
  while true do
    local entry = redis.pcall('LINDEX', queue, '0') -- a number would take longer: Redis makes a string of it
    if type(entry) ~= 'string' or entry == caller_entry then return nil end
    local now = redis.call('TIME') -- once: a call takes long on a server that has been idle for milliseconds
    local line, ms, reserve, token = read_entry(entry)
    local fence = 0
    if line and reserve > 0 then
      local err
      fence, reserve, err = next_fences(counter, reserve, now)
      if err then return nil end
    end
    -- LPOP is the first write, and needs no memory. After a script's first write Redis no longer
    -- refuses its other writes when it is out of memory.
    if type(redis.pcall('LPOP', queue)) ~= 'string' then return nil end
    if line and not passed_over(queue .. ':' .. line) then
      local grant = grant_message(fence, reserve, ms, now, token)
      -- Written before it is published: a waiter that hears of a grant has it.
      if reserve > 0 and not pcall(issue_fences, counter, fence, reserve, keep) then return nil end
      if redis.pcall('SET', lock, token, 'PX', ms).err then return nil end
      if type(redis.pcall('PUBLISH', queue .. ':' .. line, grant)) ~= 'number' then -- forbidden
        redis.pcall('DEL', lock) -- its holder would not know
        return nil
      end
      tell_first(queue, ms) -- the grant is published: nothing may fail from here on
      return token, tonumber(ms), now
    end
  end
end
