-- release_fast: the common case of release: all still hold their locks, and nobody queues. It runs
-- before release.lua and all functions that release.lua needs: defining those takes longer than this.
--
-- KEYS, ARGV  those of release.lua
--
-- Returns  as release.lua, if all locks are released. Otherwise release.lua goes on, with n and entry.
local n, entry = #KEYS / 3, ARGV[1]

-- One lock. The caches of an idle server are cold, so the path is short, and apart from the other.
if n == 1 then
  if entry == '' and redis.pcall('GET', KEYS[1]) == ARGV[3] and redis.pcall('EXISTS', KEYS[2]) == 0 and redis.pcall('DEL', KEYS[1]) == 1 then
    redis.pcall('PUBLISH', ARGV[4], ARGV[3]) -- a hint: where it is forbidden, the release stands
    return 1
  end

-- Several locks.
elseif entry == '' then
  local holders, held = redis.pcall('MGET', unpack(KEYS, 1, n)), 0
  for i = 1, n do
    if holders[i] == ARGV[2 + i] then held = held + 1 end
  end
  if held == n and redis.pcall('EXISTS', unpack(KEYS, n + 1, 2 * n)) == 0 then
    local deleted = redis.pcall('DEL', unpack(KEYS, 1, n))
    if type(deleted) == 'number' then
      local released = {} -- two may release the same lock: the first has released it, the second finds none
      for i = 1, n do
        holders[i] = not released[KEYS[i]] and 1
        if deleted < n then released[KEYS[i]] = true end
        if holders[i] then redis.pcall('PUBLISH', ARGV[2 + n + i], ARGV[2 + i]) end -- a hint, likewise
      end
      return holders
    end
  end
end
