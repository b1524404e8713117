-- expiry: when a fence counter expires. Prepended to the scripts that grant.
--
-- That is keep ms after the time that its number says, however late it is stored. So when the counter is
-- gone, the server's time is past the number, even if the clock was ahead and was set back.
--
-- fence    the number
-- keep     in ms; 0: the counter never expires
-- Returns  the options of SET
local function expiry(fence, keep)
  if keep > 0 then return 'PXAT', math.floor(fence / 1000) + keep .. '' end -- Lua makes a string of it faster than Redis
end
