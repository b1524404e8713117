-- extend: let each hold that still counts last for its TTL from now. It never shortens one: a
-- request that was delayed may arrive after a later one that asked for more. Where it would shorten,
-- it writes the old end again, because replicas confirm only what is written.
--
-- KEYS[i]           a lock; the same one may come several times, for several holds
-- ARGV[i]           a hold's token
-- ARGV[#KEYS + i]   its TTL in milliseconds; or a single one, if all have the same
--
-- Returns how many holds the request has, if all are extended; otherwise, for each i in turn:
--   1        extended
--   nil      nobody holds the lock
--   owner    this hold is over; that owner holds the lock
--   {error}  WRONGTYPE, NOLOCK, NOPERM of HGETALL: it stops no other renewal
-- Errors   READONLY, NOPERM of what comes after HGETALL: they stop all renewals
-- Works also when Redis is out of memory.
local replies, extended = {}, 0
for i, key in ipairs(KEYS) do
  local token, ttl = ARGV[i], ARGV[#KEYS + i] or ARGV[#KEYS + 1]
  local lock = read_lock(key) -- holds.lua
  if lock.err then
    replies[i] = {lock.err}
  elseif not lock.holds[token] then
    replies[i] = who_holds(key, lock) or false
  else
    keep(key, lock, token, lock.now + ttl)
    replies[i], extended = 1, extended + 1
  end
end
return extended == #KEYS and extended or replies
