-- permits: who holds permits, and who gets those that are free. Prepended, after holderset, fences and
-- queue of internal/algorithm, to every script.
--
-- A permit is a member of the lock (holders.lua). A hold of one permit is permit:<token>; a hold of several is that,
-- permit:<token>:2, permit:<token>:3 and so on. So the size of the set says how many permits are taken.
own_kind = kinds.permit

-- Reads the semaphore whose keys are KEYS, and drops the holds that have lapsed.
-- permits  how many there are, unless they were set at run time
-- keep     how long a fence counter outlives the time that its number says, in ms; 0: for ever
-- members  see read_lock
-- Returns  the semaphore; nil, error
local function open(permits, keep, members)
  local s, err = drop_lapsed(KEYS[1], members)
  if err then return nil, err end
  s.queue, s.counter, s.permits, s.keep = KEYS[2], KEYS[3], permits, tonumber(keep)
  return s
end

-- Returns how many permits there are.
local function limit(s)
  local set = not s.limit and redis.pcall('GET', KEYS[4]) -- what is no number of permits is as if nothing were set
  s.limit = s.limit or tonumber(type(set) == 'string' and string.match(set, '^%d+$') or s.permits)
  return s.limit
end

-- Returns the token of the i-th of several holds that were granted at once: driver.HoldToken.
local function hold_token(token, i) return i > 1 and i .. '.' .. token or token end

-- Returns the i-th permit of the token.
local function member(token, i) return 'permit:' .. token .. (i > 1 and ':' .. i or '') end

-- Returns the members that are so many permits of the token.
local function members(token, permits)
  local all = {}
  for i = 1, permits do all[i] = member(token, i) end
  return all
end

-- Returns the members that the token holds; nil if it holds no permits.
local function held_members(s, token)
  local n = 0
  while read(s, 'ZSCORE', member(token, n + 1)) do n = n + 1 end
  return n > 0 and members(token, n) or nil
end

-- Returns how many permits are free; negative: the limit was lowered, and the holders keep theirs.
local function free(s) return limit(s) - (read(s, 'ZCARD') or 0) end

-- Takes the permits of the token out; holds: of so many holds. Returns how many; nil: it held none.
local function remove_permits(s, token, holds)
  local n, asked = 0, false
  for i = 1, holds or 1 do
    local own, permit = hold_token(token, i), 1
    while not (asked and s.count == 0) and remove(s, member(own, permit)) do n, permit, asked = n + 1, permit + 1, true end
    asked = true
  end
  if n == 0 then return nil end
  shorten(s)
  return n
end

-- Makes the token the holder of permits until ends. The fence comes first: if it fails, nothing is held.
-- reserve  how many fences: for it, and for those to whom its process hands the permits on
-- holds    so many holds of so many permits (hold_token); they share 256 fences; nil: one
-- Returns  the first fence, how many for each hold; nil, nil, error
local function grant(s, token, permits, ends, reserve, holds)
  holds = holds or 1
  local wanted = math.max(math.min(reserve, math.floor(256 / holds)), 1)
  local fence, reserved, err = next_fences(s.counter, wanted * holds, s.time)
  if err then return nil, nil, err end
  reserved = math.max(math.floor(reserved / holds), 1)
  issue_fences(s.counter, fence, reserved * holds, s.keep)
  local all = members(token, permits)
  for i = 2, holds do
    for _, m in ipairs(members(hold_token(token, i), permits)) do all[#all + 1] = m end
  end
  hold(s, all, ends)
  return fence, reserved
end

-- Tells the first in the queue that it is first, and when to ask.
local function call_first(s)
  local _, left = look(s)
  tell_first(s.queue, math.max(left or 1, 1))
end

-- The direct grant to an entry that has left the queue. Returns false if it cannot be published: then nobody
-- can be served.
local function serve_entry(s, channel, ms, permits, token)
  if permits > limit(s) then -- it asks, and learns that it can never have so many
    redis.pcall('PUBLISH', channel, 'next 1')
    return true
  end
  if is_held(s, member(token, 1)) then return true end -- the entry is out of date
  local held, fence, reserved = pcall(grant, s, token, permits, s.now + ms, 16)
  if not held then return false end
  if type(redis.pcall('PUBLISH', channel, grant_message(fence, reserved, ms, s.time, token))) ~= 'number' then
    pcall(remove_permits, s, token) -- its holder would not know
    return false
  end
  return true
end

-- Serves the queue in its order, as long as the permits of the first are free. A waiter for many permits is not
-- overtaken by those behind it that want few, unless it has died. Stops at the caller's entry.
-- After its first write it raises no error: where the queue cannot be served, a release is a mere release.
-- moved  whether the caller has taken the first out of the queue: the next is to hear that it is first
-- Returns whether nobody in the queue comes before the caller.
local function serve(s, caller_entry, moved)
  local able = true
  while able do
    local entry = redis.pcall('LINDEX', s.queue, '0')
    if type(entry) ~= 'string' or entry == caller_entry then return true end
    local line, ms, permits, token = read_entry(entry)
    local channel = line and s.queue .. ':' .. line
    local counted, rest = pcall(free, s)
    if counted and rest < 1 and line and permits <= limit(s) then break end -- nobody would gain from passing it over
    local listens = line and not passed_over(channel)
    if counted and listens and permits <= limit(s) and permits > rest then break end
    local _, _, err = next_fences(s.counter, 1, s.time)
    -- LPOP is the first write, and needs no memory: after it, Redis refuses none to this script.
    able = false -- in two steps: miniredis' Lua takes "able = counted and not err and …" for true
    if counted and not err then able = type(redis.pcall('LPOP', s.queue)) == 'string' end
    if able then
      moved = true
      able = not listens or serve_entry(s, channel, ms, permits, token)
    end
  end
  if moved then call_first(s) end
  return not able
end
