-- acquire_fast: the common case of acquire: one permit of a semaphore of which none is taken, for which nobody queues, and whose
-- number of permits is not set. It runs before acquire.lua and the functions that acquire.lua needs. KEYS, ARGV and what it
-- returns: see there.
if ARGV[5] == '1' and ARGV[6] == '' and not ARGV[7] and redis.pcall('EXISTS', KEYS[1], KEYS[2], KEYS[4]) == 0 then
  local fence = grant_alone(KEYS[1], 'permit:' .. ARGV[4], ARGV[3], KEYS[3], tonumber(ARGV[2])) -- alone.lua
  if fence then return fence end
end
