-- limit: set how many permits there are. If there are more now, they go to the first in the queue. If there are
-- fewer, the holders keep theirs until they release them.
--
-- KEYS     those of acquire
-- ARGV[1]  how many permits there are, if they are not set
-- ARGV[2]  how long the counter outlives the time that its number says, in ms; 0: for ever
-- ARGV[3]  how many permits to set; 0: no longer set
-- ARGV[4]  the channel for waiters that do not queue: they hear "permits" if nobody queues any more
--
-- Returns  1
-- Errors   WRONGTYPE, NOLOCK, OOM, NOPERM: nothing changed
local _, err = drop_lapsed(KEYS[1]) -- holders.lua
if err then return err end
if ARGV[3] == '0' then
  redis.call('SET', KEYS[4], '', 'PX', 1) -- no number; DEL would be one more right that a user needs
else
  redis.call('SET', KEYS[4], ARGV[3])
end
local s = open(ARGV[1], ARGV[2]) -- permits.lua
if serve(s) then redis.pcall('PUBLISH', ARGV[4], 'permits') end
return 1
