-- release: give up a hold. In the same step the next of the queue come in. If others may
-- come in then, the release is published.
--
-- KEYS     those of acquire
-- ARGV[1]  how long the counter outlives the time that its number says, in ms; 0: for ever
-- ARGV[2]  the holder's token
-- ARGV[3]  an entry to take out of the queue, in an undo; otherwise empty
-- ARGV[4]  the channel for waiters that do not queue
-- ARGV[5]  how many readers the token stands for, in an undo; otherwise left out
--
-- Returns  1    released
--          nil  this token holds nothing
-- Errors   WRONGTYPE, NOLOCK, NOPERM: the holder keeps the lock
-- Works also when Redis is out of memory.
--
-- release_fast.lua, which stands before this script, has found that this is not the common case, and has read first_two, the first two
-- members.
local s, err = open(ARGV[1], first_two) -- phases.lua
if err then return err end
local token, entry = ARGV[2], ARGV[3]
local mode = held(s) or 'read' -- where nobody holds, there is no reader either
if not remove_holds(s, mode, token, tonumber(ARGV[5] or 1)) then mode = nil end
if entry ~= '' then
  for _, queue in ipairs({s.read, s.write}) do
    local out = redis.pcall('LREM', queue, 0, entry)
    s.changed = s.changed or type(out) == 'number' and out > 0
  end
end

serve(s, mode or s.ended)
call_first(s)
tell_free(s, mode, token, ARGV[4])
return mode and 1 or nil
