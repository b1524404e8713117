-- jump_holds: what a jump of the server's clock means for the stamps that packages reentrant, semaphore and
-- rwlock keep besides their key's TTL: each hold's end, in milliseconds of that clock.
--
-- KEYS[1]  the lock
-- ARGV[1]  by how much the clock jumps, in milliseconds; negative: back
-- Returns  how many holds there were.
local n, kind = 0, redis.call('TYPE', KEYS[1]).ok
if kind == 'hash' then
  for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
    if string.sub(field, 1, 5) == 'hold:' then
      redis.call('HINCRBY', KEYS[1], field, -ARGV[1])
      n = n + 1
    end
  end
elseif kind == 'zset' then
  for _, member in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
    redis.call('ZINCRBY', KEYS[1], -ARGV[1], member)
    n = n + 1
  end
end
return n
