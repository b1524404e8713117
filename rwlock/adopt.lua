-- adopt: give a hold to the caller that has its token. The hold gets a new token, and the fence of a new hold of its
-- kind. The old token then adopts, extends and releases nothing. A downgrade makes the hold a reader's; then the
-- readers that wait come in.
--
-- KEYS     those of acquire
-- ARGV[1]  how long the counter outlives the time that its number says, in ms; 0: for ever
-- ARGV[2]  the hold's token
-- ARGV[3]  TTL in milliseconds
-- ARGV[4]  the new token
-- ARGV[5]  1: the hold is to read from now on; 0: it is as it was
-- ARGV[6]  the channel for waiters that do not queue
--
-- Returns  the fence (an integer): adopted
--          nil  the old token holds nothing
-- Errors   WRONGTYPE, NOLOCK, FENCE, OOM, NOPERM: the hold is as it was
-- Never repeated: if the reply is lost, the engine releases both tokens.
local s, err = open(ARGV[1]) -- phases.lua
if err then return err end
local from = held_by(s, ARGV[2])
if not from then
  assert_primary(s.lock)
  return nil
end
local to, ends = ARGV[5] == '1' and 'read' or from, s.now + ARGV[3]
prove_rights(s, to .. ':' .. ARGV[4])
local fence, _, err = grant(s, to, ARGV[4], 1, ends)
if err then return err end
remove_holds(s, from, ARGV[2], 1)
if to ~= from then
  serve(s, from)
  call_first(s)
  redis.pcall('PUBLISH', ARGV[6], ARGV[2]) -- as in release
end
return fence
