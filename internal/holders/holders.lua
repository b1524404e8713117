-- holders: the holders of a lock that several may hold at a time. Prepended to the scripts of semaphore and rwlock.
--
-- The lock is a sorted set. Its members are what is held, their scores the server's time in ms at which each
-- ends. A member whose time has passed has lapsed: it does not count, even if it is still there. The key
-- expires with its last member.

-- Drops the members that have lapsed. The first write, if there is one, needs no memory.
-- Returns  the server's time in ms, the reply of TIME, nil, one of the members that it dropped (nil: none)
--          nil, nil, error: the key is no such lock (WRONGTYPE, NOLOCK), or may not be read (NOPERM)
local function drop_lapsed(lock)
  local first = redis.pcall('ZRANGE', lock, 0, 0, 'WITHSCORES')
  if first.err then return nil, nil, first end
  if redis.call('PTTL', lock) == -1 then
    return nil, nil, redis.error_reply('NOLOCK the key ' .. lock .. ' holds no lock: it has no expiry')
  end
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  if not first[2] or tonumber(first[2]) >= now then return now, time end
  redis.call('ZREMRANGEBYSCORE', lock, '-inf', '(' .. now)
  return now, time, nil, first[1]
end

-- Returns whether the member is there. It raises no error.
local function is_held(lock, member) return type(redis.pcall('ZSCORE', lock, member)) == 'string' end

-- Returns the member that ends first, and in how many ms; nil if there are no members.
local function first_to_end(lock, now)
  local first = redis.call('ZRANGE', lock, 0, 0, 'WITHSCORES')
  return first[1], first[2] and first[2] - now
end

-- Lets the key expire with its last member, or at ends if that is later.
local function expire(lock, ends)
  local last = redis.call('ZRANGE', lock, -1, -1, 'WITHSCORES')
  redis.call('PEXPIREAT', lock, math.max(ends, tonumber(last[2] or 0)))
end

-- Makes members last until ends, or longer if they do already.
-- PEXPIREAT comes first: it needs no memory, and after a script's first write Redis refuses it none. A user
-- who may not PEXPIREAT makes no member that stays for ever.
local function hold(lock, members, ends)
  expire(lock, ends)
  local scores = {}
  for i, member in ipairs(members) do
    scores[2 * i - 1], scores[2 * i] = ends, member
  end
  redis.call('ZADD', lock, 'GT', unpack(scores))
  expire(lock, ends)
end

-- Takes members out. The key then expires with the last of the others. pcall: if that is forbidden, the members that
-- are left end all the same.
local function let_go(lock, members)
  redis.call('ZREM', lock, unpack(members))
  pcall(expire, lock, 0)
end
