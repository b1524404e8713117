-- acquire_fast: the common case of acquire: one hold of a lock that nobody holds, and for which nobody queues. It runs before
-- acquire.lua and the functions that acquire.lua needs. KEYS, ARGV and what it returns: see there.
if ARGV[5] == '1' and ARGV[6] == '' and not ARGV[7] and redis.pcall('EXISTS', KEYS[1], KEYS[2], KEYS[3]) == 0 then
  local fence = grant_alone(KEYS[1], ARGV[4] .. ':' .. ARGV[3], ARGV[2], KEYS[4], tonumber(ARGV[1])) -- alone.lua
  if fence then return fence end
end
