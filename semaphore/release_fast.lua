-- release_fast: the common case of release: this is the only permit that is taken, and nobody queues. It runs before release.lua
-- and the functions that release.lua needs: defining those takes longer than this. KEYS, ARGV and what it returns: see there.
local first_two = redis.pcall('ZRANGE', KEYS[1], '0', '1', 'WITHSCORES')
if ARGV[4] == '' and #first_two == 2 and first_two[1] == 'permit:' .. ARGV[3] and redis.pcall('EXISTS', KEYS[2]) == 0 then
  local now = redis.call('TIME')
  local lapsed = tonumber(first_two[2]) < now[1] * 1000 + math.floor(now[2] / 1000)
  if not lapsed and redis.pcall('ZREM', KEYS[1], first_two[1]) == 1 then
    redis.pcall('PUBLISH', ARGV[5], ARGV[3]) -- a hint: where it is forbidden, the release stands
    return 1
  end
end
