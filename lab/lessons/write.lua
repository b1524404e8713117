-- write: a write to a store that remembers the greatest fence it has seen.
--
-- KEYS[1]  what is written: a hash of its value and that fence
-- ARGV[1]  the writer's fence
-- ARGV[2]  the value
--
-- Returns  1  written
--          0  refused: there was a write with a greater fence

local greatest = tonumber(redis.call('HGET', KEYS[1], 'fence') or 0)
if tonumber(ARGV[1]) < greatest then
  return 0
end
redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'value', ARGV[2])
return 1
