-- release: give up a hold. In the same step the next of the queue come in. If others may
-- come in then, the release is published.
--
-- KEYS     those of acquire
-- ARGV[1]  how long the counter outlives the time that its number says, in ms; 0: for ever
-- ARGV[2]  the holder's token
-- ARGV[3]  an entry to take out of the queue, in an undo; otherwise empty
-- ARGV[4]  the channel for waiters that do not queue
--
-- Returns  1    released
--          nil  this token holds nothing
-- Errors   WRONGTYPE, NOLOCK, NOPERM: the holder keeps the lock
-- Works also when Redis is out of memory.
local s, err = open(ARGV[1]) -- phases.lua
if err then return err end
local token, entry = ARGV[2], ARGV[3]
local mode = held(s) or 'read' -- where nobody holds, there is no reader either
if not remove_hold(s, mode, token) then mode = nil end
if entry ~= '' then
  for _, queue in ipairs({s.read, s.write}) do
    local out = redis.pcall('LREM', queue, 0, entry)
    s.changed = s.changed or type(out) == 'number' and out > 0
  end
end

serve(s, mode or s.ended)
call_first(s)
local holds = held(s)
local frees = mode == 'write' or s.changed or mode and not holds
if frees and (not holds or holds == 'read' and not first_waiting(s, 'write')) then
  redis.pcall('PUBLISH', ARGV[4], token) -- a hint: where it is forbidden, the release stands
end
return mode and 1 or nil
