-- release: give permits back. In the same step they go to the first in the queue. If nobody queues, the release
-- is published, and so is the undo of an entry in the queue.
--
-- KEYS     those of acquire
-- ARGV[1]  how many permits there are, if KEYS[4] does not say
-- ARGV[2]  how long the counter outlives the time that its number says, in ms; 0: for ever
-- ARGV[3]  the holder's token
-- ARGV[4]  an entry to take out of the queue, in an undo; otherwise empty
-- ARGV[5]  the channel for waiters that do not queue
-- ARGV[6]  how many holds the token stands for, in an undo; left out: one
--
-- Returns  1    released
--          nil  this token holds no permits
-- Errors   WRONGTYPE, NOLOCK, NOPERM: the holder keeps its permits
-- Works also when Redis is out of memory.
--
-- release_fast.lua, which stands before this script, has found that this is not the common case, and has read first_two, the first two
-- members.
local s, err = open(ARGV[1], ARGV[2], first_two) -- permits.lua
if err then return err end
local token, entry = ARGV[3], ARGV[4]

local held = remove_permits(s, token, tonumber(ARGV[6]))
local first = entry ~= '' and redis.pcall('LINDEX', s.queue, '0') == entry
local left = entry ~= '' and redis.pcall('LREM', s.queue, 0, entry)

local unwanted = serve(s, nil, first)
if unwanted and (held or type(left) == 'number' and left > 0) then
  redis.pcall('PUBLISH', ARGV[5], token) -- a hint: where it is forbidden, the release stands
end
return held and 1 or nil
