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
-- ARGV[5]  its entry in the queue; empty: it does not queue
-- ARGV[6]  there if it has asked with this entry before
--
-- Returns  the fence (an integer): granted
--          {token, ms}: refused; the hold that ends first, and when
--          {token, ms, seconds, microseconds, place, before}: the same; the server's time; the contender's place
--            in the queue, from 1, or 0 if it has none; 1 if it had that place before, or else 0
-- Errors   WRONGTYPE, NOLOCK, FENCE, OOM, NOPERM: this request gave the contender neither the lock nor a place.
--          Waiters that are dead may have left the queue, and others have been served. NOPERM of ZREMRANGEBYSCORE:
--          it has its place
local s, err = open(ARGV[1]) -- phases.lua
if err then return err end
local token, mode, entry, ends = ARGV[3], ARGV[4], ARGV[5], s.now + ARGV[2]
local member = mode .. ':' .. token

if read(s, 'ZSCORE', member) then -- granted while it queued, or the reply was lost
  local fence, err = grant(s, mode, token, ends)
  return fence or err
end

serve(s, s.ended, entry)
local holds = held(s) -- nobody: those who wait could not be served
local free = not holds or mode == 'read' and holds == 'read' and not first_waiting(s, 'write')
if s.caller_next or free then
  local done, fence, err = pcall(function()
    prove_rights(s, member)
    return grant(s, mode, token, ends)
  end)
  -- If serve had to stop before the caller's entry, that is still in the queue.
  if done and fence and ARGV[6] and not s.caller_next and redis.pcall('LREM', s[mode], 1, entry) == 1 then s.changed = true end
  call_first(s)
  if not done then return {err = type(fence) == 'table' and fence.err or fence} end -- servers differ in what pcall returns
  return fence or err
end

call_first(s)
local first, left = look(s)
local refused = {token_of(first), left}
if entry ~= '' then
  refused = {token_of(first), left, tonumber(s.time[1]), tonumber(s.time[2]), enqueue(s[mode], entry, left, ARGV[2], ARGV[6])} -- enqueue.lua
end
assert_primary(s.lock)
return refused
