-- extend: for each lock, if the token is still its holder's, start the TTL again.
--
-- A lock that is gone is never made again, and a TTL is never shortened: a request that was stuck
-- on its way may arrive after a later one, whose longer TTL the holder relies on. The script
-- writes even if the TTL stays what it is, because WAIT confirms only what was written (see
-- Options.Acks).
--
-- KEYS[i]           a lock
-- ARGV[i]           the token
-- ARGV[#KEYS + i]   its TTL in milliseconds; or one TTL for all
--
-- Returns for each lock in turn
--   1        extended
--   nil      the lock is lost
--   token    another holds it
--   {error}  WRONGTYPE, NOPERM: this lock cannot be extended, the others can
-- Errors   what stops all of them, such as READONLY: nothing changed. NOPERM of GETEX, where this lock is another's or
--          gone: the locks before it are extended
-- Needs no memory, so it works when Redis is out of memory.
local function extend(lock, token, ttl)
  local holder = redis.pcall('GET', lock)
  if type(holder) == 'table' then return {holder.err} end
  if holder ~= token then return redis.call('GETEX', lock) end -- as GET, but a replica refuses it
  return redis.call('PEXPIRE', lock, math.max(redis.call('PTTL', lock), ttl)) == 1 and 1
end

local answers = {}
for i, lock in ipairs(KEYS) do
  answers[i] = extend(lock, ARGV[i], ARGV[#KEYS + i] or ARGV[#KEYS + 1])
end
return answers
