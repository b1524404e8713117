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
local function assert_primary(lock) redis.call('ZREMRANGEBYSCORE', lock, '1', '0') end

-- Raises an error if the user may not run a command that the holder will need. Before Redis 7.0 the command itself has to
-- tell: it must change nothing.
local function prove(...)
  if not (redis.acl_check_cmd and redis.acl_check_cmd(...)) then redis.call(...) end
end

-- Reads the lock, and changes nothing.
-- members  the reply of ZRANGE, if it has been asked for the first two
-- Returns  the lock: lock is its key, now the server's time in ms, time the reply of TIME; first, ends and count as look says
--          nil, error: the key is no such lock (WRONGTYPE, NOLOCK), or may not be read (NOPERM)
local function read_lock(lock, members)
  members = members or redis.pcall('ZRANGE', lock, '0', '1', 'WITHSCORES')
  if members.err then return nil, members end
  local first, what = members[1], own_kind
  local left = first and redis.call('PTTL', lock) or prove('PTTL', lock)
  if first then what = kinds[string.match(first, '^(%a+):')] or 'no lock: one of its members is ' .. string.sub(first, 1, 50) end
  if what == own_kind and left == -1 then what = 'no lock: it has no expiry' end
  if what ~= own_kind then
    assert_primary(lock)
    return nil, redis.error_reply('NOLOCK the key ' .. lock .. ' holds ' .. what)
  end
  local time = redis.call('TIME')
  return {lock = lock, now = time[1] * 1000 + math.floor(time[2] / 1000), time = time,
    first = first, ends = tonumber(members[2]), count = #members / 2}
end

-- Reads the lock as read_lock, and drops the members that have lapsed. The first write, if there is one, needs no memory.
-- Returns  the lock; lapsed is one of the members that it dropped (nil: none)
--          nil, error: as read_lock
local function drop_lapsed(lock, members)
  local s, err = read_lock(lock, members)
  if err or not s.first or s.ends >= s.now then return s, err end
  redis.call('ZREMRANGEBYSCORE', lock, '-inf', '(' .. s.now)
  s.lapsed, s.count = s.first, nil
  return s
end

-- Reads the members again, if they have changed (count is nil): first is the one that ends first, ends is when (nil: there are
-- none), count is how many there are, 2 if more.
-- Returns first, and in how many ms it ends
local function look(s)
  if not s.count then
    local members = redis.call('ZRANGE', s.lock, '0', '1', 'WITHSCORES')
    s.first, s.ends, s.count = members[1], tonumber(members[2]), #members / 2
  end
  return s.first, s.first and s.ends - s.now
end

-- Returns what a command reads of the lock; nil: it has no members. Then nothing is read, but who may not read gets nothing.
local function read(s, command, ...) return (s.count == 0 and prove or redis.call)(command, s.lock, ...) end

-- Returns whether the member is there. It raises no error.
local function is_held(s, member) return type(redis.pcall('ZSCORE', s.lock, member)) == 'string' end

-- Returns when the last member ends, or ends if that is later.
local function last_end(s, ends)
  if s.count == 0 then return ends end
  local last = s.count == 1 and s.ends or redis.call('ZRANGE', s.lock, '-1', '-1', 'WITHSCORES')[2]
  return math.max(ends, tonumber(last or 0))
end

-- Raises an error if the user may not make the member a holder and take it out. It comes before the first write of a grant: the
-- member is not there.
local function prove_rights(s, member)
  prove('ZADD', s.lock, 'XX', s.now, member)
  prove('ZREM', s.lock, member)
end

-- Makes members last until ends, or longer if they do already.
-- held  whether they are holders already. Then PEXPIREAT comes first: it needs no memory, and after a script's first write Redis
--       refuses it none. Otherwise ZADD does; a user who may not PEXPIREAT makes no member that stays for ever.
local function hold(s, members, ends, held)
  local last, scores = last_end(s, ends), {}
  local before = held and redis.call or prove
  before('PEXPIREAT', s.lock, last)
  for i, member in ipairs(members) do
    scores[2 * i - 1], scores[2 * i] = ends, member
  end
  redis.call('ZADD', s.lock, 'GT', unpack(scores))
  s.count = nil
  redis.call('PEXPIREAT', s.lock, last)
end

-- Takes members out. Returns whether any was there. A replica refuses that in any case; an ACL, only if one is there.
local function remove(s, ...)
  local removed = redis.pcall('ZREM', s.lock, ...)
  if type(removed) == 'table' then
    for _, member in ipairs({...}) do
      if redis.call('ZSCORE', s.lock, member) then redis.call('ZREM', s.lock, member) end -- the same error
    end
    assert_primary(s.lock)
    return false
  end
  if removed == 0 then return false end
  s.first, s.count = nil, s.count == 1 and 0 or nil
  return true
end

-- After members have been taken out: lets the key expire with the last of the others. Raises no error: where that is forbidden,
-- those that are left end all the same.
local function shorten(s)
  local known, last = pcall(last_end, s, 0)
  if known and last > 0 then redis.pcall('PEXPIREAT', s.lock, last) end
end
