-- extend: for each lock, if its holder is who asks, count the TTL anew. Never makes
-- a lock that is gone, and never shortens one: a request that was stuck on its way
-- may come after a later one that asked for more, on which the holder relies. It writes
-- all the same: replicas confirm what is written, not what was written before.
--
-- KEYS[i]       a lock
-- ARGV[2i-1]    its holder's token
-- ARGV[2i]      TTL in milliseconds
--
-- Returns, for each i in turn:
--   1        extended
--   nil      the lock is gone
--   token    another holds it
--   {error}  the key is no lock
-- Needs no memory, so it works also when Redis is out of it.
local answers = {}
for i, lock in ipairs(KEYS) do
  local token, ttl = ARGV[2 * i - 1], ARGV[2 * i]
  local holder = redis.pcall('GET', lock)
  if holder == token then
    redis.call('PEXPIRE', lock, math.max(redis.call('PTTL', lock), ttl))
    answers[i] = 1
  elseif type(holder) == 'table' then
    answers[i] = {holder.err} -- one that cannot be renewed must not stop the others
  else
    answers[i] = holder
  end
end
return answers
