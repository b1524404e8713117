-- pass: release, and acquire for the next contender of the same process, behind all who come first.
--
-- KEYS     those of acquire
-- ARGV[i]  i = 1 … 7: those of acquire, for the next contender
-- ARGV[8]  the holder's token
-- ARGV[9]  the channel for waiters that do not queue
--
-- Returns  nil: the holder's token holds nothing
--          else it is released, and this is what acquire returns to the next contender. But where acquire returns an error,
--          that is refused, by the old holder, for a millisecond, and has no place: it asks again
-- Errors   WRONGTYPE, NOLOCK, NOPERM: the holder keeps the lock, and the next contender has neither the lock nor a new place
-- Works also when Redis is out of memory. Never repeated: if the reply is lost, the engine releases both tokens.
local s, err = open(ARGV[1]) -- phases.lua
if err then return err end
local mode = held(s) or 'read' -- where nobody holds, there is no reader either
if not remove_holds(s, mode, ARGV[8], 1) then return nil end

serve(s, mode, ARGV[6])
local reply
if ARGV[7] == '1' and is_held(s, ARGV[4] .. ':' .. ARGV[3]) then -- granted while it queued
  reply = grant_caller(s)
  call_first(s)
else
  reply = admit(s) -- admit.lua
end
local writes = reply and not is_error(reply) and ARGV[4] == 'write'
reply = reply or refuse(s)
if is_error(reply) then reply = {ARGV[8], 1, tonumber(s.time[1]), tonumber(s.time[2]), 0, 0} end
if not writes then tell_free(s, mode, ARGV[8], ARGV[9]) end
return reply
