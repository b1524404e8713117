-- free: the common case of acquire: none of the locks is held, and nobody queues. It stands before
-- all functions that acquire.lua needs, because to define those takes longer than this.
--
-- KEYS, ARGV  those of acquire.lua
--
-- Returns  as acquire.lua, if all locks are granted. Otherwise it goes on to acquire.lua, with the
--          replies so far in granted
local n, ttl, many, entry, unproven = #KEYS / 3, ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4] == '1'
local granted = {} -- the reply to each
local free = many < 2 and entry == '' and not unproven and redis.pcall('EXISTS', unpack(KEYS, 1, 2 * n)) == 0
local clock, fence
local least = 1e15 -- has as many digits as the clock; what is as long as that, and a number from there on, is a fence, however it is spelt
if free and many == 1 then -- next_fences and issue_fences for all: see fence.lua
  local now = redis.call('TIME')
  clock = now[1] .. string.sub('00000' .. now[2], -6)
  fence = tonumber(clock)
end

if free and n == 1 then -- a server that was at rest has to fetch all that it runs: here is nothing that only several need
  if many == 1 then
    local counter = KEYS[3]
    local last = redis.pcall('SET', counter, clock, 'GET')
    local count = tonumber(last)
    if last == false then -- there was none
      fence = fence + 512
      redis.call('SET', counter, string.format('%.0f', fence))
    elseif not (count and #last == #clock and count >= least and count < fence) then -- no fence, or the clock is behind it
      fence = nil
      if type(last) == 'string' then redis.call('SET', counter, last) end -- as if nothing had been
    end
  end
  local set = (fence or many == 0) and redis.pcall('SET', KEYS[1], ARGV[5], 'NX', 'PX', ttl)
  if set and set.ok then return fence or 0 end
elseif free then
  local fences, all = {}, true -- of each that may be granted
  if many == 1 then
    local lasts, issued = redis.pcall('MGET', unpack(KEYS, 2 * n + 1, 3 * n)), {}
    for i = 1, n do
      local counter, last = KEYS[2 * n + i], lasts[i]
      local count = tonumber(last)
      if last == false then -- there was none; or it is no string: NX leaves it as it is
        local first = fence + 512
        local set = redis.pcall('SET', counter, string.format('%.0f', first), 'NX')
        fences[i] = set and set.ok and first
      elseif count and #last == #clock and count >= least and count < fence then
        fences[i] = fence
        issued[#issued + 1] = counter
        issued[#issued + 1] = clock
      end
    end
    if #issued > 0 and redis.pcall('MSET', unpack(issued)).err then fences = {} end
  end
  for i = 1, n do
    local fence = many == 0 and 0 or fences[i]
    -- NX: another of them may have asked for the same lock
    local set = fence and redis.pcall('SET', KEYS[i], ARGV[4 + i], 'NX', 'PX', ttl)
    if set and set.ok then granted[i] = fence else all = false end
  end
  if all then return granted end
end
