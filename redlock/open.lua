-- open: acquire without fences, where the lock is free and the server votes, as mostly. It
-- stands before all functions that acquire.lua needs, for to make those takes longer than this.
-- What it does not find as expected is left to acquire.lua, which has the same KEYS and ARGV.
--
-- The guard is open for the TTL that it notes as open, in the process, and the role, that it
-- has seen: see guard.lua.
if not KEYS[3] and not redis.call('GET', KEYS[1]) and (not redis.acl_check_cmd or redis.acl_check_cmd('DEL', KEYS[1])) then
  local votes = not KEYS[2]
  if KEYS[2] then
    local seen, open = unpack(redis.pcall('HMGET', KEYS[2], 'seen', 'open'))
    local info = seen and open == ARGV[3] and redis.pcall('INFO', 'replication')
    votes = type(info) == 'string' and string.find(info, 'role:master', 1, true) and string.find(info, 'master_replid:' .. seen .. '\r', 1, true)
  end
  if votes then
    redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
    return 1
  end
end
