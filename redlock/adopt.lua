-- adopt: extend for somebody new who brings the holder's token, which a token of his
-- own takes the place of: so on each node it can be adopted once. Where it was adopted
-- and that is forgotten, the old token may be back (an AOF that ends early): so the
-- guard has a say here, too.
--
-- KEYS[1]  the lock
-- KEYS[2]  the restart guard; absent: none
-- KEYS[3]  the lock's fence counter; absent: no fences
-- ARGV[1]  the holder's token
-- ARGV[2]  TTL in milliseconds
-- ARGV[3]  the token that takes its place
-- ARGV[4]  the longest TTL that the contender knows to be in use, in ms
--
-- Returns  1 or more, {that number, …}, {'guard', …}: as acquire
--          0      it has been adopted, by this attempt: two of the nodes are one server
--          nil    the lock is gone
--          token  another holds it
-- Errors   WRONGTYPE, GUARD, FENCE: nothing changed but the guard
local holder = redis.call('GET', KEYS[1])
if holder == ARGV[3] then
  return 0
end
if holder ~= ARGV[1] then
  return holder
end
return vote(ARGV[3], ARGV[2], ARGV[4]) -- vote.lua, which stands before this script
