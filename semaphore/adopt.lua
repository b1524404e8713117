-- adopt: give a hold to the caller that has its token. The hold gets a new token and a new fence. The old token
-- then adopts, extends and releases nothing.
--
-- KEYS     those of acquire
-- ARGV[1]  how many permits there are, if KEYS[4] does not say
-- ARGV[2]  how long the counter outlives the time that its number says, in ms; 0: for ever
-- ARGV[3]  the hold's token
-- ARGV[4]  TTL in milliseconds
-- ARGV[5]  the new token
--
-- Returns  the fence (an integer): adopted, with as many permits as it had
--          nil  the old token holds no permits
-- Errors   WRONGTYPE, NOLOCK, FENCE, OOM, NOPERM: the hold is as it was
-- Never repeated: if the reply is lost, the engine releases the new token.
local s, err = open(ARGV[1], ARGV[2]) -- permits.lua
if err then return err end
local held = held_members(s, ARGV[3])
if not held then
  assert_primary(s.lock)
  return nil
end
prove_rights(s, member(ARGV[5], 1))
local fence, _, err = grant(s, ARGV[5], #held, s.now + ARGV[4], 1)
if err then return err end
remove_permits(s, ARGV[3])
return fence
