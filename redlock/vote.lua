-- vote: what granting takes beside the key being free, or the old holder's. Prepended,
-- behind guard.lua, to the scripts that grant; their KEYS are the same, and what it
-- returns they say of it.
--
-- Reads all that can be wrong (a key of another type, a counter that is none) before it
-- writes the lock.
local function vote(token, ttl, longest)
  if not KEYS[2] then
    redis.call('SET', KEYS[1], token, 'PX', ttl)
    return 1
  end

  local g, err = guard(KEYS[2], longest)
  if err then return err end
  local last, memory
  if KEYS[3] then
    last, memory = unpack(redis.call('HMGET', KEYS[3], 'n', 'gen'))
    local n = string.match(last or '0', '^%d+$') and tonumber(last or '0')
    if not n or n >= 9007199254740991 then -- 2^53 - 1: beyond it Lua's numbers are not exact
      return redis.error_reply('FENCE the counter ' .. KEYS[3] .. ' holds no fence: ' .. string.sub(last, 1, 50))
    end
    last = n
  end
  keep(KEYS[2], g)
  if g.wait > 0 then
    return {'guard', g.why, g.wait, g.max}
  end
  redis.call('SET', KEYS[1], token, 'PX', ttl)
  local told = g.max > tonumber(longest) and g.max or 1
  if not KEYS[3] then
    return told
  end
  local recalls = memory == g.gen or not memory and g.new
  return {told, last, recalls and 1 or 0, g.us, g.gen}
end
