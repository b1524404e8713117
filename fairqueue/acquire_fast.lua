-- acquire_fast: the common case of acquire: nobody holds the locks, and nobody queues. It runs before
-- acquire.lua and all other functions that acquire.lua needs: defining those takes longer than this.
--
-- KEYS, ARGV  those of acquire.lua
--
-- Returns  as acquire.lua, if all locks are granted. Otherwise acquire.lua goes on, with n, ttl,
--          reserve, keep, entry, unproven, and in granted the replies so far.
--
-- A counter may have advanced for a lock that is not granted. That is harmless: fences rise, and
-- may leave numbers out.
local n, ttl, reserve, keep, entry, unproven = #KEYS / 3, ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], ARGV[5] == '1'
local granted = {} -- the reply to each
local fast = reserve < 2 and entry == '' and not unproven and redis.pcall('EXISTS', unpack(KEYS, 1, 2 * n)) == 0

-- The next fence is the clock, if the counter is behind it: see numbers.lua for all other cases. A
-- counter of 16 characters, as many as the clock has, and at least 1e15, is a fence. Other
-- spellings are left to numbers.lua.
local clock, fence
local least = 1e15
if fast and reserve == 1 then
  local now = redis.call('TIME')
  clock = now[1] .. string.sub('00000' .. now[2], -6)
  fence = tonumber(clock)
end

-- One lock. The caches of an idle server are cold, so the path is short, and apart from the other.
if fast and n == 1 then
  if reserve == 1 then
    local counter = KEYS[3]
    local last = redis.pcall('SET', counter, clock, 'GET', expiry(fence, keep)) -- most often the counter is behind the clock
    local count = tonumber(last)
    if last == false then -- there was no counter
      fence = fence + 512
      redis.call('SET', counter, fence, expiry(fence, keep))
    elseif not (count and #last == #clock and count >= least and count < fence) then -- for numbers.lua
      fence = nil
      if type(last) == 'string' then redis.call('SET', counter, last) end -- as it was; acquire.lua has it expire
    end
  end
  local set = (fence or reserve == 0) and redis.pcall('SET', KEYS[1], ARGV[6], 'NX', 'PX', ttl)
  if set and set.ok then return fence or 0 end

-- Several locks.
elseif fast then
  local fences, all = {}, true -- fences[i] is nil or false: not granted here
  if reserve == 1 then
    local lasts, option, date = redis.pcall('MGET', unpack(KEYS, 2 * n + 1, 3 * n)), expiry(fence, keep)
    for i = 1, n do
      local counter, last = KEYS[2 * n + i], lasts[i]
      local count = tonumber(last)
      if last == false then -- there is no counter; or it is no string, which NX leaves as it is
        local first = fence + 512
        local set = redis.pcall('SET', counter, first, 'NX', expiry(first, keep))
        fences[i] = set and set.ok and first
      elseif count and #last == #clock and count >= least and count < fence then
        local set = option and redis.pcall('SET', counter, clock, option, date) or redis.pcall('SET', counter, clock)
        fences[i] = set.ok and fence
      end
    end
  end
  for i = 1, n do
    local fence = reserve == 0 and 0 or fences[i]
    -- NX: another of them may have asked for the same lock
    local set = fence and redis.pcall('SET', KEYS[i], ARGV[5 + i], 'NX', 'PX', ttl)
    if set and set.ok then granted[i] = fence else all = false end
  end
  if all then return granted end
end
