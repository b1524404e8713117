-- fenced_write: write, unless a later holder has been here. (If values are
-- read before they are written, count reads, too: docs/use/fencing.md.)
--
-- KEYS[1]  the item, a hash: value, and fence, the greatest so far
-- ARGV[1]  the fence of the writer's hold
-- ARGV[2]  the new value
--
-- Returns  1  written
--          0  refused, as there was a greater fence: nothing has changed

local greatest = tonumber(redis.call('HGET', KEYS[1], 'fence') or '0')
if tonumber(ARGV[1]) < greatest then
  return 0
end
redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'value', ARGV[2])
return 1
