-- acquire: take permits, if they are free and nobody waits for some already. Otherwise a place in the queue.
--
-- KEYS[1]  the lock
-- KEYS[2]  its queue
-- KEYS[3]  its fence counter
-- KEYS[4]  how many permits there are, if that was set at run time
-- ARGV[1]  how many permits there are, if it was not
-- ARGV[2]  how long the counter outlives the time that its number says, in ms; 0: for ever
-- ARGV[3]  TTL in milliseconds
-- ARGV[4]  the contender's token
-- ARGV[5]  how many permits it asks for
-- ARGV[6]  its entry in the queue; empty: it does not queue
-- ARGV[7]  1: it has asked with this entry before
-- ARGV[8]  1: prove that the user may release and renew, also if nobody holds permits
-- ARGV[9]  how many fences to reserve for a hold
-- ARGV[10] how many holds of so many permits it asks for
--          ARGV[9] and ARGV[10] are left out if both are 1; ARGV[7] and ARGV[8], too, if both are empty then
--
-- Returns  the fence (an integer): granted
--          {fence, fences, holds}: granted; as many holds as were free, and how many fences each of them has
--          {token, ms, taken, limit}: too few are free; the hold that ends first, and when; how many permits are taken, and
--            how many there are
--          {token, ms, taken, limit, seconds, microseconds, place, before}: the same; the server's time; the contender's
--            place in the queue, from 1, or 0 if it has none; 1 if it had that place before, or else 0
-- Errors   WRONGTYPE, NOLOCK, LIMIT (more than there are), FENCE, OOM, NOPERM: this request gave the contender
--          neither permits nor a place. Waiters that are dead may have left the queue, and others have been served.
--          NOPERM of ZREMRANGEBYSCORE: it has its place
--
-- acquire_fast.lua, which stands before this script, has found that this is not the common case.
local s, err = open(ARGV[1], ARGV[2]) -- permits.lua
if err then return err end
local held = held_members(s, ARGV[4])
-- granted while it queued, or the reply was lost; nobody knows that fence, so it gets a new one
if held then return grant_caller(s, #held, ARGV[9], holds_of_caller(s, ARGV[10])) end -- admit.lua

local reply = too_many(s)
if not reply then
  reply = admit(s, serve(s, ARGV[6]), ARGV[9], ARGV[10])
  if reply then return reply end
  reply = refuse(s)
end
assert_primary(s.lock)
return reply
