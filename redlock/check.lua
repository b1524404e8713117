-- check: whether this server votes. Changes nothing.
--
-- KEYS[1]  the guard
-- ARGV[1]  the longest TTL in use, in ms
--
-- Returns  1: it votes
--          {'guard', why, ms until it votes, the longest TTL in use}: not yet
--          {'unasked', the same}: not yet, and this time begins when it is first asked for a lock
-- Errors   WRONGTYPE, READONLY, GUARD
--
-- It is appended to guard.lua.
local g, err = guard(KEYS[1], ARGV[1])
if err then return err end
if g.wait > 0 then
  return {g.fresh and 'unasked' or 'guard', g.why, g.wait, g.max}
end
return 1
