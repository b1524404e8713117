-- expiry: when a fence counter expires. Prepended to the scripts that grant.
--
-- That is keep ms after the time that its number says, not after it is stored. So the time is past the
-- number when the counter is gone, also if the clock was ahead, and is set back before that.
--
-- fence    the number
-- keep     in ms; 0: the counter never expires
-- Returns  the options of SET
local function expiry(fence, keep)
  if keep > 0 then return 'PXAT', math.floor(fence / 1000) + keep .. '' end -- Lua makes a string of it faster than Redis
end
