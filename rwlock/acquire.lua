-- acquire: hold the lock to read or to write, if that is possible and nobody waits who comes first. Otherwise a
-- place in the queue.
--
-- KEYS[1]  the lock
-- KEYS[2]  the queue of readers
-- KEYS[3]  the queue of writers
-- KEYS[4]  its fence counter
-- ARGV[1]  how long the counter outlives the time that its number says, in ms; 0: for ever
-- ARGV[2]  TTL in milliseconds
-- ARGV[3]  the contender's token
-- ARGV[4]  read or write
-- ARGV[5]  how many readers come in with it; of a writer, how many fences to reserve
-- ARGV[6]  its entry in the queue; empty: it does not queue
-- ARGV[7]  1: it has asked with this entry before
-- ARGV[8]  the token of a reader that a reader joins: while that holds the lock, this one may, too, although others wait
-- ARGV[9]  1: prove that the user may release and renew, also if the lock is free
--          ARGV[7] to ARGV[9] are left out if all three are empty
--
-- Returns  the fence (an integer): granted
--          {fence, how many}: granted to several readers, or to a writer with several fences
--          {token, ms}: refused; the hold that ends first, and when
--          {token, ms, seconds, microseconds, place, before}: the same; the server's time; the contender's place
--            in the queue, from 1, or 0 if it has none; 1 if it had that place before, or else 0
-- Errors   WRONGTYPE, NOLOCK, FENCE, OOM, NOPERM: this request gave the contender neither the lock nor a place.
--          Waiters that are dead may have left the queue, and others have been served. NOPERM of ZREMRANGEBYSCORE:
--          it has its place
--
-- acquire_fast.lua, which stands before this script, has found that this is not the common case.
local s, err = open(ARGV[1]) -- phases.lua
if err then return err end
if read(s, 'ZSCORE', ARGV[4] .. ':' .. ARGV[3]) then return grant_caller(s) end -- granted while it queued, or the reply was lost

local joins = ARGV[4] == 'read' and (ARGV[8] or '') ~= '' and read(s, 'ZSCORE', 'read:' .. ARGV[8])
if not joins then serve(s, s.ended, ARGV[6]) end
local reply = admit(s, joins) -- admit.lua
if not reply then
  reply = refuse(s)
  assert_primary(s.lock)
end
return reply
