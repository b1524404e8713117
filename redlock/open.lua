-- open: acquire without fences, where the lock is free and the server votes, as mostly. It
-- stands before all functions that acquire.lua needs, for to make those takes longer than this.
-- What it does not find as expected is left to acquire.lua, which has the same KEYS and ARGV.
--
-- The guard is open (see guard.lua) for whoever knows of the longest TTL that it knows of, where
-- the server is what was seen, and its memory is old enough, or was primed: then born is 0, and no
-- clock has a say. It reads no more than that takes, for what each vote reads is most of its price.
if not KEYS[3] and not redis.call('GET', KEYS[1]) and (not redis.acl_check_cmd or redis.acl_check_cmd('DEL', KEYS[1])) then
  local votes = not KEYS[2]
  if KEYS[2] then
    local seen, born, max = unpack(redis.pcall('HMGET', KEYS[2], 'seen', 'born', 'max'))
    local info = seen and born and max == ARGV[3] and redis.pcall('INFO', 'replication')
    votes = type(info) == 'string' and string.find(info, 'role:master', 1, true) and string.find(info, 'master_replid:' .. seen .. '\r', 1, true)
    if votes and born ~= '0' then
      local now = redis.call('TIME')
      votes = born + max <= now[1] * 1000 + math.floor(now[2] / 1000)
    end
  end
  if votes then
    redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
    return 1
  end
end
