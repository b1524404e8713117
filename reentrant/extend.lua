-- extend: for each hold that still counts, count its TTL anew. Never makes a hold that is
-- gone or has lapsed, though its owner goes on elsewhere; and never shortens one: a
-- request that was stuck on its way may come after a later one that asked for more, on
-- which the holder relies. It writes all the same: replicas confirm what is written, not
-- what was written before.
--
-- KEYS[i]           a lock; the same one may come several times, for several holds
-- ARGV[i]           a hold's token
-- ARGV[#KEYS + i]   its TTL in milliseconds; or one alone, if all have the same
--
-- Returns how many holds there are, if all are extended; or else, for each i in turn:
--   1        extended
--   nil      nobody holds the lock
--   owner    the hold is gone; that owner holds the lock
--   {error}  the key is no lock
-- Works also when Redis is out of memory: see keep.
local now = now_ms()
local answers, extended = {}, 0
for i, key in ipairs(KEYS) do
  local token, ends = ARGV[i], now + (ARGV[#KEYS + i] or ARGV[#KEYS + 1])
  local lock, err = read_lock(key, now) -- holds.lua, which stands before this script
  if err then
    answers[i] = {err.err} -- one that cannot be renewed must not stop the others
  elseif not lock then
    answers[i] = false
  elseif not lock.ends[token] then
    answers[i] = lock.owner
  elseif keep(key, lock, token, math.max(lock.ends[token], ends)) then
    prune(key, lock)
    answers[i] = 1
    extended = extended + 1
  else
    answers[i] = false
  end
end
return extended == #KEYS and extended or answers
