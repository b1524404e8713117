-- writeback: note a fence beside the lock that it numbers, on a node that granted it.
--
-- Only while the token is there, and in the memory that granted it: then nobody else was
-- granted the lock here since, and whoever is next will read this number. A number of
-- another memory says nothing of what that one has forgotten. A node that had forgotten
-- what came before is told when a quorum has noted it, whoever has its key by then: from then on
-- it knows that number, and so remembers.
--
-- KEYS[1]  the lock
-- KEYS[2]  the restart guard
-- KEYS[3]  the lock's fence counter: a hash of n, the number, and gen, the memory that
--          has known all numbers up to it. No TTL: it outlives every hold
-- ARGV[1]  the holder's token; empty: a quorum has noted it already
-- ARGV[2]  the fence
-- ARGV[3]  the name of the memory that granted the lock
-- ARGV[4]  the longest TTL that the client knows of, in milliseconds
--
-- Returns  1      noted
--          nil    the lock is gone
--          token  another holds it
--          {'guard', why, ms until the node votes, the longest TTL in use}: another memory
-- Errors   WRONGTYPE, GUARD: nothing changed
if ARGV[1] ~= '' then
  local holder = redis.call('GET', KEYS[1])
  if holder ~= ARGV[1] then
    return holder
  end
end
local g, err = guard(KEYS[2], ARGV[4]) -- guard.lua, which stands before this script
if err then return err end
if g.gen ~= ARGV[3] then
  return {'guard', g.why, g.wait, g.max}
end
local n = tonumber(redis.call('HGET', KEYS[3], 'n') or 0)
redis.call('HSET', KEYS[3], 'n', string.format('%.0f', math.max(n, tonumber(ARGV[2]))), 'gen', g.gen)
return 1
