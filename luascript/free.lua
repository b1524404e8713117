-- free: acquire, where none of the locks is held and nobody queues for one, as mostly. It
-- stands before all functions that acquire.lua needs, for to make those takes longer than this.
-- What it does not find as expected is left to acquire.lua, which has the same KEYS and ARGV.
local n, ttl, many, entry, unproven = #KEYS / 3, ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4] == '1'
local granted = {} -- what each is told
if many < 2 and entry == '' and not unproven and redis.pcall('EXISTS', unpack(KEYS, 1, 2 * n)) == 0 then
  local clock, now, fence = nil, nil, 0
  if many == 1 then
    now = redis.call('TIME')
    clock = now[1] .. string.sub('00000' .. now[2], -6)
  end
  for i = 1, n do
    if clock then -- next_fences and issue_fences in one: see fence.lua
      local counter = KEYS[2 * n + i]
      local last = redis.pcall('SET', counter, clock, 'GET')
      if last == false then
        fence = tonumber(clock) + 512
        redis.call('SET', counter, fence)
      elseif type(last) ~= 'string' then
        fence = nil
      elseif #last == #clock and last < clock and not string.find(last, '%D') then
        fence = tonumber(clock)
      else -- the clock is behind, or that was no fence: as if nothing had been
        fence = nil
        redis.call('SET', counter, last)
      end
    end
    -- NX: another of them may have asked for the same lock
    local set = fence and redis.pcall('SET', KEYS[i], ARGV[4 + i], 'NX', 'PX', ttl)
    if set and set.ok then granted[i] = fence end
  end
  if n == 1 and granted[1] then return granted[1] end
end
