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
-- ARGV[7]  there if it has asked with this entry before
--
-- Returns  the fence (an integer): granted
--          {token, ms, taken, limit}: too few are free; the hold that ends first, and when; how many permits are taken, and
--            how many there are
--          {token, ms, taken, limit, seconds, microseconds, place, before}: the same; the server's time; the contender's
--            place in the queue, from 1, or 0 if it has none; 1 if it had that place before, or else 0
-- Errors   WRONGTYPE, NOLOCK, LIMIT (more than there are), FENCE, OOM, NOPERM: this request gave the contender
--          neither permits nor a place. Waiters that are dead may have left the queue, and others have been served.
--          NOPERM of ZREMRANGEBYSCORE: it has its place
local s, err = open(ARGV[1], ARGV[2]) -- permits.lua
if err then return err end
local token, permits, entry, ends = ARGV[4], tonumber(ARGV[5]), ARGV[6], s.now + ARGV[3]

local held = held_members(s, token)
if held then -- granted while it queued, or the reply was lost; nobody knows that fence, so it gets a new one
  local fence, err = grant(s, token, #held, ends)
  return fence or err
end
if permits > limit(s) then
  assert_primary(s.lock)
  return redis.error_reply('LIMIT ' .. permits .. ' permits are asked for, and there are ' .. s.limit)
end

local clear = serve(s, entry)
local rest = free(s)
if clear and permits <= rest then
  prove_rights(s, member(token, 1))
  local fence, err = grant(s, token, permits, ends)
  if err then return err end
  if ARGV[7] and redis.pcall('LREM', s.queue, 1, entry) == 1 then serve(s, nil, true) end -- what is left is the next one's
  return fence
end

local first, left = look(s)
local refused = {token_of(first), left, s.limit - rest, s.limit}
if entry ~= '' then
  refused = {token_of(first), left, s.limit - rest, s.limit, tonumber(s.time[1]), tonumber(s.time[2]),
    enqueue(s.queue, entry, left, ARGV[3], ARGV[7])} -- enqueue.lua
end
assert_primary(s.lock)
return refused
