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
local call, pcall = redis.call, redis.pcall
local gt = redis.acl_check_cmd ~= nil -- Redis 7.0, whose PEXPIRE can compare

-- a TTL that is not the longer one is written all the same, as long as it was
local function count_anew(lock, ttl)
  if not gt or call('PEXPIRE', lock, ttl, 'GT') == 0 then
    call('PEXPIRE', lock, math.max(call('PTTL', lock), ttl))
  end
end

local answers = {}
for i, lock in ipairs(KEYS) do
  local holder = pcall('GET', lock)
  if holder == ARGV[2 * i - 1] then
    count_anew(lock, ARGV[2 * i])
    answers[i] = 1
  elseif type(holder) == 'table' then
    answers[i] = {holder.err} -- one that cannot be renewed must not stop the others
  else
    answers[i] = holder
  end
end
return answers
