-- free: acquire, where none of the locks is held and nobody queues for one, as mostly. It
-- stands before all functions that acquire.lua needs, for to make those takes longer than this.
-- What it does not find as expected is left to acquire.lua, which has the same KEYS and ARGV.
local n, ttl, many, entry, unproven = #KEYS / 3, ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4] == '1'
local granted, all = {}, true -- what each is told
if many < 2 and entry == '' and not unproven and redis.pcall('EXISTS', unpack(KEYS, 1, 2 * n)) == 0 then
  local fences = {} -- of each that may be granted
  if many == 1 then -- next_fences and issue_fences for all: see fence.lua
    local now = redis.call('TIME')
    local clock = now[1] .. string.sub('00000' .. now[2], -6)
    local fence, issued = tonumber(clock), {}
    -- What is cheapest: for one it is read and written by one command, for several all are read, and then written.
    local lasts = n == 1 and {redis.pcall('SET', KEYS[3], clock, 'GET')} or redis.pcall('MGET', unpack(KEYS, 2 * n + 1, 3 * n))
    for i = 1, n do
      local counter, last = KEYS[2 * n + i], lasts[i]
      if last == false then -- there was none; or, of several, one that is no string: NX leaves it as it is
        local first = fence + 512
        local set = redis.pcall('SET', counter, string.format('%.0f', first), n == 1 and 'XX' or 'NX')
        fences[i] = set and set.ok and first
      elseif last and #last == #clock and last < clock and not string.find(last, '%D') then
        fences[i] = fence
        issued[#issued + 1] = counter
        issued[#issued + 1] = clock
      elseif n == 1 and type(last) == 'string' then -- the clock is behind, or that was no fence: as if nothing had been
        redis.call('SET', counter, last)
      end
    end
    if n > 1 and #issued > 0 and redis.pcall('MSET', unpack(issued)).err then fences = {} end
  end
  for i = 1, n do
    local fence = many == 0 and 0 or fences[i]
    -- NX: another of them may have asked for the same lock
    local set = fence and redis.pcall('SET', KEYS[i], ARGV[4 + i], 'NX', 'PX', ttl)
    if set and set.ok then granted[i] = fence else all = false end
  end
  if all then return n == 1 and granted[1] or granted end
end
