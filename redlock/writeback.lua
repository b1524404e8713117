-- writeback: note the last of a holder's fences on a node that granted the lock: phase two of fence.go.
--
-- Only while the token is there, in the generation that granted it. Then no other contender was
-- granted the lock here since, and the next one will read this number. A voter that had forgotten
-- its counter gets the number without a token when a quorum has noted it; from then on it
-- remembers.
--
-- KEYS[1]  the lock
-- KEYS[2]  the restart guard
-- KEYS[3]  the lock's fence counter: a hash of n, the number, and gen, the generation that has
--          known all numbers up to it
-- ARGV[1]  the holder's token; empty: a quorum has noted the fence already
-- ARGV[2]  the fence; of several that are reserved the last
-- ARGV[3]  the generation that granted the lock
-- ARGV[4]  the longest TTL in use that the client knows of, in ms
-- ARGV[5]  how long the counter outlives the time that its number says, in ms; 0: for ever
--
-- Returns  1      noted
--          nil    the lock is lost
--          token  another holds it
--          {'guard', why, ms until it votes, the longest TTL in use}: another generation
-- Errors   WRONGTYPE, READONLY, GUARD: nothing changed
--
-- It is appended to guard.lua.
local holder = redis.call('GETEX', KEYS[1]) -- as GET, but a replica refuses it
if ARGV[1] ~= '' and holder ~= ARGV[1] then
  return holder
end
local g, err = guard(KEYS[2], ARGV[4])
if err then return err end
if g.gen ~= ARGV[3] then
  return {'guard', g.why, g.wait, g.max}
end
local n = math.max(redis.call('HGET', KEYS[3], 'n') or 0, ARGV[2])
-- The expiry comes from the number, not from this moment: when the counter is gone, this node's time, which
-- goes with each vote, is past every number that it noted.
local function expire()
  if ARGV[5] == '0' then
    redis.call('PERSIST', KEYS[3])
  else
    redis.call('PEXPIREAT', KEYS[3], math.floor(n / 1000) + ARGV[5])
  end
end
expire() -- an ACL that forbids it ends the script here
redis.call('HSET', KEYS[3], 'n', string.format('%.0f', n), 'gen', g.gen)
expire() -- a counter that is new has none yet
return 1
