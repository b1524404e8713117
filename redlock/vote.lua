-- vote: grant the lock, which is free or the old holder's, if the guard lets this node vote. It is
-- appended to guard.lua; acquire.lua and adopt.lua are appended to it. It uses their KEYS, and they
-- return what it returns: see acquire.lua.
--
-- It reads all that can be wrong (a key of another type, a counter that holds no number) before it
-- writes.
local function vote(token, ttl, longest)
  if redis.acl_check_cmd and not redis.acl_check_cmd('DEL', KEYS[1]) then -- Redis 7.0
    return redis.error_reply('NOPERM a user who may not DEL this lock could not release it: allow this user +del')
  end
  if not KEYS[2] then
    redis.call('SET', KEYS[1], token, 'PX', ttl)
    return 1
  end

  local g, err = guard(KEYS[2], longest)
  if err then return err end
  local last, gen
  if KEYS[3] then
    last, gen = unpack(redis.call('HMGET', KEYS[3], 'n', 'gen'))
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
  local most = g.max > tonumber(longest) and g.max or 1
  if not KEYS[3] then
    return most
  end
  -- On a bootstrapped node a counter that is missing was never there, or has expired. Then g.us, which goes
  -- with the vote, is past every number that was noted here. On any other node it may be lost.
  local remembers = gen == g.gen or not gen and g.new
  return {most, last, remembers and 1 or 0, g.us, g.gen}
end
