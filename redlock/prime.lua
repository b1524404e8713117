-- prime: let a server vote at once of which the operator says that it has forgotten
-- nothing. One that votes already is left as it is.
--
-- KEYS[1]  the guard
--
-- Returns  1: it votes from now on
--          0: it did so before
-- Errors   WRONGTYPE, GUARD: nothing changed
local g, err = guard(KEYS[1], 0) -- guard.lua, which stands before this script
if err then return err end
if g.wait <= 0 and not g.fresh then
  return 0
end
g.gen = g.run .. ':' .. string.format('%.0f', g.us)
g.born, g.new, g.changed = 0, true, true
keep(KEYS[1], g)
return 1
