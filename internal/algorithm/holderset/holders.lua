-- holders: the holders of a lock that several may hold at a time. Prepended to the scripts of semaphore and rwlock.
--
-- The lock is a sorted set. Its members are what is held, their scores the server's time in ms at which each
-- ends. A member whose time has passed has lapsed: it does not count, even if it is still there. The key
-- expires with its last member.
--
-- A member is a word, a colon and a token. The word says what kind of lock this is, so that no algorithm takes the lock
-- of another for its own.
local kinds = {permit = 'the permits of a semaphore', read = 'a read-write lock', write = 'a read-write lock'}
local own_kind -- the kind of the algorithm, which sets it

-- Returns the token of a member.
local function token_of(member) return string.match(member, ':(.*)$') end

-- Raises an error on a replica, which refuses ZREMRANGEBYSCORE. Here that changes nothing, because the range is empty. It comes
-- before each answer that no write precedes: what a replica has may be out of date. In acquire it is the last command, because
-- Redis refuses no memory to a script that has written.
local function assert_primary(lock) redis.call('ZREMRANGEBYSCORE', lock, 1, 0) end

-- Reads the lock, and changes nothing.
-- Returns  the server's time in ms, the reply of TIME, nil, the member that ends first and when (nil: there is none)
--          nil, nil, error: the key is no such lock (WRONGTYPE, NOLOCK), or may not be read (NOPERM)
local function read_lock(lock)
  local first = redis.pcall('ZRANGE', lock, 0, 0, 'WITHSCORES')
  if first.err then return nil, nil, first end
  local expires, what = redis.call('PTTL', lock) ~= -1, own_kind
  if first[1] then what = kinds[string.match(first[1], '^(%a+):')] or 'no lock: one of its members is ' .. string.sub(first[1], 1, 50) end
  if what == own_kind and not expires then what = 'no lock: it has no expiry' end
  if what ~= own_kind then
    assert_primary(lock)
    return nil, nil, redis.error_reply('NOLOCK the key ' .. lock .. ' holds ' .. what)
  end
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000), time, nil, first[1], tonumber(first[2])
end

-- Drops the members that have lapsed. The first write, if there is one, needs no memory.
-- Returns  the server's time in ms, the reply of TIME, nil, one of the members that it dropped (nil: none)
--          nil, nil, error: as read_lock
local function drop_lapsed(lock)
  local now, time, err, first, ends = read_lock(lock)
  if err then return nil, nil, err end
  if not first or ends >= now then return now, time end
  redis.call('ZREMRANGEBYSCORE', lock, '-inf', '(' .. now)
  return now, time, nil, first
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
local function remove_members(lock, members)
  redis.call('ZREM', lock, unpack(members))
  pcall(expire, lock, 0)
end
