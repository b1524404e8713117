-- holds: reads a lock, and changes its holds. Stands before every other script.
--
-- A lock is a hash: owner, fence, and for each hold a field hold:<token>, the server's time in
-- ms at which that hold ends. A hold whose time has passed has lapsed: it does not count, even
-- if its field is still there. The key expires with its latest hold.

-- Raises an error if the user may not run a command that the lock will need. Before Redis 7.0 the command itself has to
-- tell: it must change nothing.
local function prove(...)
  if not (redis.acl_check_cmd and redis.acl_check_cmd(...)) then redis.call(...) end
end

-- The number that a text of up to 16 digits stands for; otherwise nil.
local function number(text)
  return string.match(text, '^%d+$') and #text < 17 and tonumber(text) or nil
end

-- Reads the lock, and changes nothing. Returns an error reply {err = ...} if the key is no lock, otherwise a table:
--   owner, fence
--   holds   the end of each hold, by token
--   count   how many there are; 0: nobody holds the lock
--   last    the latest of their ends
--   lapsed  the fields of holds that do not count any more
--   now     the server's time in ms
--   time    the same, as TIME replies
-- If the hash has no hold but that of the token in only, that hold counts, because the key is there. Then no time is asked: now and
-- time are nil.
local function read_lock(key, only)
  local fields = redis.pcall('HGETALL', key)
  if fields.err then return fields end
  local owner, fence, holds, count, last, odd = nil, nil, {}, 0, 0, nil
  for i = 1, #fields, 2 do
    local field, value = fields[i], fields[i + 1]
    local n = field == 'owner' or number(value)
    if field == 'owner' and value ~= '' then
      owner = value
    elseif field == 'fence' and n and n > 0 then
      fence = n
    elseif n and string.sub(field, 1, 5) == 'hold:' then
      holds[string.sub(field, 6)], count, last = n, count + 1, math.max(last, n)
    else
      odd = 'a field is unknown or has a bad value: ' .. string.sub(field, 1, 50)
    end
  end
  if #fields > 0 and not (owner and fence) then odd = odd or 'it has no owner or no fence' end
  local lapsed, time, now = {}, nil, nil
  if not (count == 1 and holds[only]) then
    local left = owner and redis.call('PTTL', key) or prove('PTTL', key) or 0
    if left == -1 then odd = 'it has no expiry' end
    time = redis.call('TIME') -- after PTTL, so that now + left is never before the key's end
    now, count, last = time[1] * 1000 + math.floor(time[2] / 1000), 0, 0
    for token, ends in pairs(holds) do
      ends = math.min(ends, now + left) -- no hold outlives its key
      if ends < now then
        table.insert(lapsed, 'hold:' .. token)
        holds[token] = nil
      else
        holds[token], count, last = ends, count + 1, math.max(last, ends)
      end
    end
  end
  return odd and redis.error_reply('NOLOCK the key ' .. key .. ' holds no re-entrant lock: ' .. odd)
    or {owner = owner, fence = fence, holds = holds, count = count, last = last, lapsed = lapsed, now = now, time = time}
end

-- Raises an error on a replica, which refuses HDEL. Here that changes nothing: no hold has an empty token. It comes before each
-- answer about a holder that no write precedes, but not before NOLOCK: what a replica has may be out of date.
local function assert_primary(key) redis.call('HDEL', key, 'hold:') end

-- Returns what a script answers about a hold that is not there: the owner of the lock; nil: nobody holds it.
local function who_holds(key, lock)
  assert_primary(key)
  return lock.count > 0 and lock.owner or nil
end

-- Writes fields of the lock, lets it expire at last, and drops what has lapsed. If it raises an error, nothing has changed: its
-- caller has proven HDEL.
--
-- PEXPIREAT comes after HSET. If the server was paused for longer than the TTL, last has passed, and PEXPIREAT deletes the key:
-- HSET would then make a lock without expiry. The holder's deadline has passed, too, whatever the script returns.
local function write(key, lock, last, ...)
  prove('HSET', key, 'owner', lock.owner)
  prove('PEXPIREAT', key, last) -- the last to be proven: before Redis 7.0 it is done
  redis.call('HSET', key, ...)
  redis.call('PEXPIREAT', key, last)
  for _, field in ipairs(lock.lapsed) do redis.call('HDEL', key, field) end
end

-- Makes token's hold last until ends, or longer if it does already.
--
-- HDEL comes first: it needs no memory, and after the first write of a script Redis gives it the memory it needs. So holders
-- renew and re-enter when Redis is out of memory.
local function keep(key, lock, token, ends)
  ends = math.max(ends, lock.holds[token] or 0)
  redis.call('HDEL', key, 'hold:') -- no hold has an empty token
  write(key, lock, math.max(ends, lock.last), 'hold:' .. token, ends)
  lock.holds[token] = ends
end

-- Ends token's hold, which is one of several. The key then expires with the last of the others.
local function end_hold(key, lock, token)
  redis.call('HDEL', key, 'hold:' .. token)
  lock.holds[token] = nil
  local last = 0
  for _, ends in pairs(lock.holds) do last = math.max(last, ends) end
  redis.pcall('PEXPIREAT', key, last) -- pcall: if it is forbidden, the lock is free before its key is gone
end
