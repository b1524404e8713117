-- extend: let each hold last for its TTL from now, and no other one. It never brings back a hold that has lapsed, and never
-- shortens one: a request that was delayed may arrive after a later one that asked for more.
--
-- KEYS[i]           a lock; the same one may come several times, for several holds
-- ARGV[i]           a hold's token
-- ARGV[#KEYS + i]   its TTL in milliseconds; or a single one, if all have the same
--
-- Returns how many holds the request has, if all are extended; otherwise, for each i in turn:
--   1        extended
--   nil      this token holds nothing
--   {error}  WRONGTYPE, NOLOCK, NOPERM of ZRANGE: it stops no other renewal
-- Errors   READONLY, NOPERM of what comes after ZRANGE: they stop all renewals
-- Works also when Redis is out of memory.
local replies, extended = {}, 0
for i, lock in ipairs(KEYS) do
  local token, ttl = ARGV[i], ARGV[#KEYS + i] or ARGV[#KEYS + 1]
  local s, err = drop_lapsed(lock) -- holders.lua
  local held = not err and held_members(s, token) -- the algorithm's
  if err then
    replies[i] = {err.err}
  elseif not held then
    assert_primary(lock)
    replies[i] = false
  else
    hold(s, held, s.now + ttl, true)
    replies[i], extended = 1, extended + 1
  end
end
return extended == #KEYS and extended or replies
