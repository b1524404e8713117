-- extend: for each lock, if the token is still its holder's, start the TTL again.
--
-- A lock that is gone is never made again, and a TTL is never shortened: a request that was stuck
-- on its way may arrive after a later one, whose longer TTL the holder relies on. The script
-- writes even if the TTL stays what it is, because WAIT confirms only what was written (see
-- Acknowledged).
--
-- KEYS[i]           a lock
-- ARGV[i]           the token
-- ARGV[#KEYS + i]   its TTL in milliseconds; or one TTL for all
--
-- Returns for each lock in turn
--   1        extended
--   nil      the lock is gone
--   token    another holds it
--   {error}  what the server says: this lock cannot be extended, the others can
-- Needs no memory, so it works when Redis is out of memory.
local function extend(lock, token, ttl)
  local holder = redis.call('GET', lock)
  if holder ~= token then
    return holder
  end
  return redis.call('PEXPIRE', lock, math.max(redis.call('PTTL', lock), ttl)) == 1 and 1
end

local answers = {}
for i, lock in ipairs(KEYS) do
  local ok, answer = pcall(extend, lock, ARGV[i], ARGV[#KEYS + i] or ARGV[#KEYS + 1])
  if not ok then answer = {type(answer) == 'table' and answer.err or tostring(answer)} end -- servers differ in what pcall returns
  answers[i] = answer
end
return answers
