-- phases: who holds the lock, and who is next. Prepended, after holderset, fences and queue of
-- internal/algorithm, to every script that changes the lock.
--
-- A hold is a member of the lock (holders.lua): read:<token> or write:<token>. Either all members are readers,
-- or there is one, a writer. Those who wait stand in two queues (queue.lua), one of readers, one of writers.
--
-- Readers and writers alternate. Who comes in depends on who went:
--
--   a writer          all readers that wait; if none waits, the first writer
--   the last reader   the first writer; if none waits, all readers
--   nobody knows      the same: the key has expired
--
-- A reader that comes while a writer waits, waits, too. So a reader waits for one writer at most, once the readers
-- before it have gone; and a writer for the writers before it, and between two of them for the readers that wait by
-- then. If the writers that wait leave their queue while others read, the readers that wait come in.

own_kind = kinds.read

-- Returns whether a member is a reader or a writer: 'read' or 'write'.
local function mode_of(member) return string.match(member, '^(%a+):') end

-- Returns how the lock is held: 'read' or 'write'; nil: nobody holds it.
local function held(s)
  local first = look(s)
  return first and mode_of(first)
end

-- Returns how the token holds the lock: 'read' or 'write'; nil: not at all.
local function held_by(s, token)
  local mode = held(s) or 'read'
  return read(s, 'ZSCORE', mode .. ':' .. token) and mode
end

-- Returns the members that the token holds: one; nil if it holds nothing.
local function held_members(s, token)
  local mode = held_by(s, token)
  return mode and {mode .. ':' .. token}
end

-- Reads the lock whose keys are KEYS, and drops the holds that have lapsed.
-- keep     how long a fence counter outlives the time that its number says, in ms; 0: for ever
-- members  see read_lock
-- Returns  the lock; nil, error. ended is 'read' or 'write' if such a hold has been dropped
local function open(keep, members)
  local s, err = drop_lapsed(KEYS[1], members)
  if err then return nil, err end
  s.read, s.write, s.counter, s.keep, s.ended = KEYS[2], KEYS[3], KEYS[4], tonumber(keep), s.lapsed and mode_of(s.lapsed)
  return s
end

-- Returns the members that are n holds: those of driver.HoldToken.
local function members(mode, token, n)
  local all = {mode .. ':' .. token}
  for i = 2, n do all[i] = mode .. ':' .. i .. '.' .. token end
  return all
end

-- Takes n holds out. Returns whether any was there.
local function remove_holds(s, mode, token, n)
  local there = remove(s, unpack(members(mode, token, n)))
  if there then shorten(s) end
  return there
end

-- Makes the token a holder until ends: n readers, or one writer with n fences. The fence comes first: if it fails, nothing is
-- held. It is a new one, which readers of one phase share: that of readers that join others is theirs, if it is still stored.
-- Returns  the fence, how many readers or fences; nil, nil, error
local function grant(s, mode, token, n, ends)
  local reads = mode == 'read'
  local fence, reserved, err = next_fences(s.counter, reads and 1 or n, s.time)
  if err then return nil, nil, err end
  local last = reads and held(s) and tonumber(redis.call('GET', s.counter) or 0) or 0
  if last > 0 then
    fence = last
  else
    issue_fences(s.counter, fence, reserved, s.keep)
  end
  hold(s, members(mode, token, reads and n or 1), ends)
  return fence, reads and n or reserved
end

-- Takes the first entry out of the queue of readers or writers. It is the first write, and needs no memory: after it,
-- Redis refuses none to this script. Returns whether it could.
local function take_out(s, mode)
  local out = type(redis.pcall('LPOP', s[mode])) == 'string'
  s.changed = s.changed or out
  return out
end

-- Returns the first entry in the queue of readers or writers that listens; nil: none. Those before it, which do not
-- listen, leave the queue. The caller's own entry counts as listening.
local function first_waiting(s, mode, caller_entry)
  while true do
    local entry = redis.pcall('LINDEX', s[mode], '0')
    if type(entry) ~= 'string' then return nil end
    local line = read_entry(entry)
    if entry == caller_entry or line and not passed_over(s[mode] .. ':' .. line) then return entry end
    if not take_out(s, mode) then return nil end
  end
end

-- Makes the first reader or writer that waits a holder: the direct grant. If that is the caller's entry, s.caller_next is set,
-- and it needs none. Returns whether somebody has come in.
local function grant_first(s, mode, caller_entry)
  local entry = first_waiting(s, mode, caller_entry)
  if not entry then return false end
  local _, _, err = next_fences(s.counter, 1, s.time)
  if err or not take_out(s, mode) then return false end
  if entry == caller_entry then
    s.caller_next = true
    return true
  end
  local line, ms, n, token = read_entry(entry)
  if is_held(s, mode .. ':' .. token) then return true end -- the entry is out of date
  local done, fence, count = pcall(grant, s, mode, token, n, s.now + ms)
  if not done then return false end
  if type(redis.pcall('PUBLISH', s[mode] .. ':' .. line, grant_message(fence, count, ms, s.time, token))) ~= 'number' then
    pcall(remove_holds, s, mode, token, n) -- its holder would not know
    return false
  end
  return true
end

-- If somebody has left a queue, others hold the lock now, or another is first: notifies the first of each queue when
-- to ask. Every script that serves the queues ends with it.
local function call_first(s)
  if not s.changed then return end
  local _, left = look(s)
  tell_first(s.read, math.max(left or 1, 1))
  tell_first(s.write, math.max(left or 1, 1))
end

-- Makes those holders who are next, as the table above says.
-- ended         which kind of hold has ended: 'read' or 'write'; nil: none, or nobody knows
-- caller_entry  the caller's entry in a queue
-- After its first write it raises no error: where the queues cannot be served, a release is a mere release.
local function serve(s, ended, caller_entry)
  if held(s) == 'write' then return end
  local writer = first_waiting(s, 'write', caller_entry)
  if ended == 'write' or not writer then
    while grant_first(s, 'read', caller_entry) do end
  end
  if writer and not s.caller_next and not held(s) then grant_first(s, 'write', caller_entry) end
end

-- At the end of a script that has taken a hold out: tells those who do not queue, if they may come in now, and could not before.
-- ended    whether a reader or a writer has gone; nil: nobody
-- token    whose hold or place it was
local function tell_free(s, ended, token, channel)
  local holds = held(s)
  local frees = ended == 'write' or s.changed or ended and not holds
  if frees and (not holds or holds == 'read' and not first_waiting(s, 'write')) then
    redis.pcall('PUBLISH', channel, token) -- a hint: where it is forbidden, the release stands
  end
end
