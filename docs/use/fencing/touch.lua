-- touch: the rule, and the read or the write that it allows, in one step.
--
-- KEYS[1]  the item: a hash of value, fence (the greatest that has touched the item,
--          also to read) and owner (whose that was)
-- ARGV[1]  the holder's fence, below 2^53, where Lua's numbers are exact
-- ARGV[2]  the holder's owner
-- ARGV[3]  the new value; absent: a read
--
-- Returns  the value (a string; empty if there is none): accepted
--          the greatest fence (an integer): stale, nothing changed
-- Errors   WRONGTYPE, FENCE: nothing changed
local last = redis.call('HMGET', KEYS[1], 'fence', 'owner', 'value')
local fence, max = tonumber(ARGV[1]), tonumber(last[1] or '0')
if not fence or not max then
  return redis.error_reply('FENCE no number: ' .. ARGV[1] .. ', ' .. tostring(last[1]))
end
if fence < max or fence == max and ARGV[2] ~= last[2] then
  return max
end
local value = ARGV[3] or last[3] or ''
redis.call('HSET', KEYS[1], 'value', value, 'fence', ARGV[1], 'owner', ARGV[2])
return value
