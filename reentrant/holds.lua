-- holds: reads a lock, and says what is none. Prepended to all scripts.
--
-- A lock is a hash: owner, fence, and for each hold a field hold:<token>, the server's
-- time in ms until which that hold counts. The key expires with the last of its holds.
-- A hold that has lapsed counts no more, though its field may still be there.
--
-- read_lock reads only: it is called before the first write, so that what is no lock
-- (WRONGTYPE, NOLOCK) is an error and left alone.

-- The server's time in ms. A hold ends as keys do: when now is greater than its end.
local function now_ms()
  local now = redis.call('TIME')
  return now[1] * 1000 + math.floor(now[2] / 1000)
end

-- The number that a text is; nil if it is none, or one that Lua cannot hold exactly.
local function whole(text)
  return string.match(text, '^%d+$') and #text < 17 and tonumber(text) or nil
end

-- Returns the lock: owner, fence, ends (by token), count and last of the live holds,
-- and lapsed, the fields of those that are not; nil if nobody holds it; nil and an
-- error if the key is no lock.
local function read_lock(key, now)
  local fields = redis.pcall('HGETALL', key)
  if fields.err then return nil, fields end
  local left = redis.call('PTTL', key) -- also of no key: where an ACL forbids it, none could be released
  if #fields == 0 then return nil end
  local lock = {ends = {}, count = 0, last = 0, lapsed = {}}
  local odd = left < 0 and 'it has no expiry'
  for i = 1, #fields, 2 do
    local field, value = fields[i], fields[i + 1]
    if field == 'owner' then
      lock.owner = value
    elseif field == 'fence' then
      lock.fence = whole(value)
    elseif string.sub(field, 1, 5) == 'hold:' and whole(value) then
      local ends = tonumber(value)
      if ends > now + left + 1000 then -- a second: some servers read their clock anew for each command
        ends = now + left -- no hold outlives its key, and must not make it live on
      end
      if ends < now then
        table.insert(lock.lapsed, field)
      else
        lock.ends[string.sub(field, 6)] = ends
        lock.count = lock.count + 1
        lock.last = math.max(lock.last, ends)
      end
    else
      odd = 'it has a field ' .. string.sub(field, 1, 50)
    end
  end
  if not lock.owner or lock.owner == '' then odd = 'it has no owner' end
  if not lock.fence or lock.fence == 0 then odd = 'it has no fence' end
  if odd then return nil, redis.error_reply('NOLOCK the key ' .. key .. ' holds no re-entrant lock: ' .. odd) end
  if lock.count == 0 then return nil end
  return lock
end

-- Takes token's hold out of what was read: it does not touch the key.
local function forget(lock, token)
  lock.ends[token] = nil
  lock.count = lock.count - 1
  lock.last = 0
  for _, ends in pairs(lock.ends) do
    lock.last = math.max(lock.last, ends)
  end
end

-- Drops the fields of lapsed holds.
local function prune(key, lock)
  for _, field in ipairs(lock.lapsed) do
    redis.call('HDEL', key, field)
  end
end

-- Makes token's hold last until ends. The key first: a key that outlives its holds is
-- free all the same, a hold that outlives its key is not. And that needs no memory, and
-- after a script's first write Redis lets the rest have what it needs, so holders can
-- renew, and enter again, when Redis is out of it.
--
-- Returns whether there still is a lock. If the server has stood still since now, for a TTL,
-- PEXPIREAT deletes the key; a field written then would be a lock without owner and expiry,
-- which nobody would ever get.
local function keep(key, lock, token, ends)
  redis.call('PEXPIREAT', key, string.format('%.0f', math.max(lock.last, ends)))
  if redis.call('PTTL', key) == -2 then return false end
  redis.call('HSET', key, 'hold:' .. token, string.format('%.0f', ends))
  return true
end

-- Makes a lock of owner, by one hold of token's until ends, where nobody holds one any more.
--
-- A lock without expiry would be held for ever, so no write may fail halfway. First comes
-- the counter: should Redis be out of memory it says so now, and a number left out is
-- nothing. Then the commands that end a lock are tried on the key while it is not there,
-- where they do nothing: an ACL that forbids one of them forbids the lock. (The DEL also
-- drops holds that have lapsed, or are being released.)
--
-- Returns the lock, as read_lock does.
local function make(key, counter, owner, token, fence, ends)
  local number, expiry = string.format('%.0f', fence), string.format('%.0f', ends)
  redis.call('SET', counter, number) -- no TTL: it outlives every hold
  redis.call('DEL', key)
  redis.call('HDEL', key, 'owner')
  redis.call('PEXPIREAT', key, expiry)
  redis.call('HSET', key, 'owner', owner, 'fence', number, 'hold:' .. token, expiry)
  redis.call('PEXPIREAT', key, expiry)
  return {owner = owner, fence = fence, ends = {[token] = ends}, count = 1, last = ends, lapsed = {}}
end
