-- check: whether this server votes. Changes nothing.
--
-- KEYS[1]  the guard
-- ARGV[1]  the longest TTL in use, in ms
--
-- Returns  1: it does
--          {'guard', why, ms until it does, the longest TTL told of}: not yet
-- Errors   WRONGTYPE, GUARD
local g, err = guard(KEYS[1], ARGV[1]) -- guard.lua, which stands before this script
if err then return err end
if g.wait > 0 then
  return {'guard', g.why, g.wait, g.max}
end
return 1
