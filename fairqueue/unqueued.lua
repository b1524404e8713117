-- unqueued: the common case of release: all still hold their locks, and nobody queues. It stands
-- before all functions that release.lua needs, because to define those takes longer than this.
--
-- KEYS, ARGV  those of release.lua
--
-- Returns  as release.lua, if all locks are released. Otherwise it goes on to release.lua
local n, entry = #KEYS / 3, ARGV[1]
if n == 1 then -- a server that was at rest has to fetch all that it runs: here is nothing that only several need
  if entry == '' and redis.pcall('GET', KEYS[1]) == ARGV[2] and redis.pcall('EXISTS', KEYS[2]) == 0 and redis.pcall('DEL', KEYS[1]) == 1 then
    redis.pcall('PUBLISH', ARGV[3], ARGV[2]) -- a hint: if it is forbidden, the release stands
    return 1
  end
elseif entry == '' then
  local holders, held = redis.pcall('MGET', unpack(KEYS, 1, n)), 0
  for i = 1, n do
    if holders[i] == ARGV[1 + i] then held = held + 1 end
  end
  if held == n and redis.pcall('EXISTS', unpack(KEYS, n + 1, 2 * n)) == 0 then
    local deleted = redis.pcall('DEL', unpack(KEYS, 1, n))
    if type(deleted) == 'number' then
      local gone = {} -- where one was asked for twice: it was there for the first
      for i = 1, n do
        holders[i] = not gone[KEYS[i]] and 1
        if deleted < n then gone[KEYS[i]] = true end
        if holders[i] then redis.pcall('PUBLISH', ARGV[1 + n + i], ARGV[1 + i]) end -- likewise
      end
      return holders
    end
  end
end
