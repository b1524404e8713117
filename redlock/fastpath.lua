-- fastpath: the common vote. It is put in front of guard.lua, vote.lua and acquire.lua, because Redis
-- makes a script's functions each time that it runs, and this returns before any is made. If the
-- guard is as guard.lua wrote it, fastpath grants only what acquire.lua would grant. It leaves
-- everything else to acquire.lua.
--
-- KEYS[1]  the lock
-- KEYS[2]  the restart guard; absent: none
-- KEYS[3]  the lock's fence counter; present: this is not the fast path
-- ARGV[1]  the contender's token
-- ARGV[2]  TTL in milliseconds
-- ARGV[3]  the longest TTL in use that the contender knows of, in ms
--
-- Returns  1: granted. Otherwise nothing changed, and acquire.lua goes on
-- Errors   WRONGTYPE: nothing changed
--
-- The guard is open if the contender and the server know the same longest TTL, this is the primary
-- that the guard has seen, and its generation is older than that TTL, or was bootstrapped (born is
-- 0: no clock has a say). See guard.lua.
if not KEYS[3] and not redis.call('GET', KEYS[1]) and (not redis.acl_check_cmd or redis.acl_check_cmd('DEL', KEYS[1])) then
  local votes = not KEYS[2]
  if KEYS[2] then
    local seen, born, max = unpack(redis.pcall('HMGET', KEYS[2], 'seen', 'born', 'max'))
    local info = seen and born and max == ARGV[3] and redis.pcall('INFO', 'replication')
    votes = type(info) == 'string' and string.find(info, 'role:master', 1, true) and string.find(info, 'master_replid:' .. seen .. '\r', 1, true)
    if votes and born ~= '0' then
      local now = redis.call('TIME')
      votes = tonumber(born) and born + max <= now[1] * 1000 + math.floor(now[2] / 1000)
    end
  end
  if votes then
    redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
    return 1
  end
end
