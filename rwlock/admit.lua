-- admit: what becomes of the contender, once those before it have been served. Prepended, after enqueue.lua and phases.lua, to
-- acquire.lua and pass.lua, whose KEYS and ARGV[1] to ARGV[7] are the same.

-- Makes the contender a holder. new says that it is none yet. Returns the reply of acquire.lua; it raises no error.
local function grant_caller(s, new)
  local done, fence, count, err = pcall(function()
    if new then prove_rights(s, ARGV[4] .. ':' .. ARGV[3]) end
    return grant(s, ARGV[4], ARGV[3], tonumber(ARGV[5]), s.now + ARGV[2])
  end)
  if not done then return {err = type(fence) == 'table' and fence.err or fence} end -- servers differ in what pcall returns
  return err or count > 1 and {fence, count} or fence
end

local function is_error(reply) return type(reply) == 'table' and reply.err end

-- Makes the contender a holder, if it may be one. joins says that it may, although others wait.
-- Returns the reply of acquire.lua; nil: it may not
local function admit(s, joins)
  local mode, holds, reply = ARGV[4], held(s), nil
  local free = not holds -- those who wait could not be served
    or mode == 'read' and holds == 'read' and not first_waiting(s, 'write')
  if joins or s.caller_next or free then
    reply = grant_caller(s, true)
    -- If serve had to stop before the caller's entry, that is still in the queue.
    if ARGV[7] == '1' and not s.caller_next and not is_error(reply) and redis.pcall('LREM', s[mode], 1, ARGV[6]) == 1 then s.changed = true end
  end
  call_first(s)
  return reply
end

-- Gives the contender its place, if it queues. Returns the reply of acquire.lua.
local function refuse(s)
  local first, left = look(s)
  if ARGV[6] == '' then return {token_of(first), left} end
  return {token_of(first), left, tonumber(s.time[1]), tonumber(s.time[2]), enqueue(s[ARGV[4]], ARGV[6], left, ARGV[2], ARGV[7] == '1')}
end
