-- extend: for each lock, if the token is still its holder's, start the TTL again.
--
-- A lock that is gone is never made again, and a TTL is never shortened: a request that was stuck
-- on its way may arrive after a later one, whose longer TTL the holder relies on. A key without
-- TTL gets one. The script writes in any case, because WAIT confirms only what was written.
--
-- KEYS[i]           a lock
-- ARGV[i]           its holder's token
-- ARGV[#KEYS + i]   its TTL in milliseconds; or one alone, if all have the same
--
-- Returns how many locks there are, if all are extended; or else, for each i in turn:
--   1        extended
--   nil      the lock is lost
--   token    another holds it
--   {error}  WRONGTYPE, NOPERM: this lock cannot be extended, the others can
-- Errors   what stops all of them, such as READONLY: nothing changed. NOPERM of GETEX, where this lock is another's or
--          gone: the locks before it are extended
-- Needs no memory, so it works also when Redis is out of it.
local call, n = redis.call, #KEYS
local gt = redis.acl_check_cmd and 'GT' -- Redis 7.0, whose PEXPIRE can compare

-- Extends what the common case, below, has not: a lock that is gone or another's, a key that is no
-- lock or has no TTL, a TTL that would not be longer; and before Redis 7.0 everything. Never returns
-- nil, which stands for the common case.
local function extend(lock, token, ttl, holder)
  holder = holder or redis.pcall('GET', lock) -- GET says why MGET gave nil: gone, no lock, or forbidden
  if type(holder) == 'table' then
    return {holder.err} -- one that cannot be renewed must not stop the others
  end
  if holder ~= token then
    return redis.call('GETEX', lock) -- as GET, but a replica refuses it
  end
  -- The longer TTL is written even if it is the present one. PEXPIRE says whether the lock is still
  -- there: some servers read their clock again for each command.
  return call('PEXPIRE', lock, math.max(call('PTTL', lock), ttl)) == 1 and 1
end

local holders = redis.pcall('MGET', unpack(KEYS)) -- one command is cheaper than many
local answers, extended = {}, 0
for i = 1, n do
  local lock, token, ttl = KEYS[i], ARGV[i], ARGV[n + i] or ARGV[n + 1]
  if gt and holders[i] == token and call('PEXPIRE', lock, ttl, gt) == 1 then
    extended = extended + 1
  else
    answers[i] = extend(lock, token, ttl, holders[i])
    if answers[i] == 1 then extended = extended + 1 end
  end
end
if extended == n then return n end
for i = 1, n do
  if answers[i] == nil then answers[i] = 1 end
end
return answers
