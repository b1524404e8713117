-- enqueue: gives an entry its place in the queue, if it has none yet. Prepended to the scripts that acquire.
--
-- left   the holder's remaining TTL, in ms
-- ttl    the waiter's TTL, in ms
-- asked  whether the entry was sent before, and so may be in the queue. LPOS looks at the whole queue,
--        so it is left out for an entry that is new
--
-- The queue expires, so that dead waiters leave nothing behind. But it outlives the waiters' pauses: the
-- n-th in the queue asks again within n - 1 of its TTLs after the holder's TTL ends, and each time the
-- queue gets its expiry again. Another TTL, and a second where TTLs are short, are for waiters that ask
-- late.
--
-- Returns  its place, from 1, or 0 if it has none; 1: it had that place before, or else 0
-- Must not raise an error: fairqueue's pass.lua has already released the lock when it calls this.
local function enqueue(queue, entry, left, ttl, asked)
  local before, place = asked and redis.pcall('LPOS', queue, entry)
  if type(before) == 'table' then return 0, 0 end
  if before then
    place = before + 1
  else
    place = redis.pcall('RPUSH', queue, entry)
    if type(place) ~= 'number' then return 0, 0 end
  end
  local ends, last = math.max(left, 0) + (place + 1) * ttl + 1000, redis.pcall('PTTL', queue)
  if type(last) == 'number' and last >= ends or redis.pcall('PEXPIRE', queue, string.format('%.0f', ends)) == 1 then
    return place, before and 1 or 0
  end
  redis.pcall('LREM', queue, 0, entry) -- or it might stay for ever
  return 0, 0
end
