-- extend: for each lock, if its holder is who asks, count the TTL anew. Never makes
-- a lock that is gone, and never shortens one: a request that was stuck on its way
-- may come after a later one that asked for more, on which the holder relies. It writes
-- all the same: replicas confirm what is written, not what was written before.
--
-- KEYS[i]           a lock
-- ARGV[i]           its holder's token
-- ARGV[#KEYS + i]   its TTL in milliseconds; or one alone, if all have the same
--
-- Returns how many locks there are, if all are extended; or else, for each i in turn:
--   1        extended
--   nil      the lock is gone
--   token    another holds it
--   {error}  the key is no lock
-- Needs no memory, so it works also when Redis is out of it.
local call, pcall = redis.call, redis.pcall
local gt = redis.acl_check_cmd ~= nil -- Redis 7.0, whose PEXPIRE can compare

-- A TTL that is not the longer one is written all the same, as long as it was. Returns
-- whether there still is a lock: some servers read their clock anew for each command.
local function count_anew(lock, ttl)
  if not gt or call('PEXPIRE', lock, ttl, 'GT') == 0 then
    return call('PEXPIRE', lock, math.max(call('PTTL', lock), ttl)) == 1
  end
  return true
end

local holders = pcall('MGET', unpack(KEYS)) -- one command is cheaper than many
local answers, extended = {}, 0
for i, lock in ipairs(KEYS) do
  local holder = holders[i] or pcall('GET', lock) -- which tells what is no lock, or forbidden, from what is gone
  if holder == ARGV[i] then
    answers[i] = count_anew(lock, ARGV[#KEYS + i] or ARGV[#KEYS + 1]) and 1
    extended = extended + (answers[i] or 0)
  elseif type(holder) == 'table' then
    answers[i] = {holder.err} -- one that cannot be renewed must not stop the others
  else
    answers[i] = holder
  end
end
return extended == #KEYS and extended or answers
