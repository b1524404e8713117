-- pass: release, and acquire for the next contender of the same process, behind all who come first.
--
-- KEYS     those of acquire
-- ARGV[i]  i = 1 … 7: those of acquire, for the next contender
-- ARGV[8]  the holder's token
-- ARGV[9]  the channel for waiters that do not queue
-- ARGV[10] how many fences to reserve, if several; otherwise left out
--
-- Returns  nil: the holder's token holds no permits
--          else they are released, and this is what acquire returns to the next contender. But where acquire returns an error
--          other than LIMIT, that is refused, by the old holder, for a millisecond, and has no place: it asks again
-- Errors   WRONGTYPE, NOLOCK, LIMIT, NOPERM: the holder keeps its permits, and the next contender has neither permits nor a
--          new place
-- Works also when Redis is out of memory. Never repeated: if the reply is lost, the engine releases both tokens.
local s, err = open(ARGV[1], ARGV[2]) -- permits.lua
if err then return err end
err = too_many(s) -- admit.lua
if err then
  assert_primary(s.lock)
  return err
end
local released = remove_permits(s, ARGV[8])
if not released then return nil end

local unwanted, left = serve(s, ARGV[6]), released - ARGV[5]
local done, reply = pcall(function()
  local held = ARGV[7] == '1' and held_members(s, ARGV[4])
  if not held then return admit(s, unwanted, ARGV[10]) or refuse(s) end
  left = released -- it was granted its own while it queued
  return grant_caller(s, #held, ARGV[10])
end)
if not done or type(reply) == 'table' and reply.err then
  reply = {ARGV[8], 1, 0, s.limit, tonumber(s.time[1]), tonumber(s.time[2]), 0, 0}
end
-- A hint, as in release: if the next contender has neither all that was released nor a place, others may come in.
local place = type(reply) == 'table' and reply[7]
if unwanted and (place == 0 or not place and left > 0) then redis.pcall('PUBLISH', ARGV[9], ARGV[8]) end
return reply
