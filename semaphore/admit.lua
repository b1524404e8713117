-- admit: what becomes of the contender, once those before it have been served. Prepended, after enqueue.lua and permits.lua, to
-- acquire.lua and pass.lua, whose KEYS and ARGV[1] to ARGV[7] are the same.

-- Returns the error of a contender that wants more permits than there are; nil: there are as many.
local function too_many(s)
  if tonumber(ARGV[5]) > limit(s) then
    return redis.error_reply('LIMIT ' .. ARGV[5] .. ' permits are asked for, and there are ' .. s.limit)
  end
end

-- Makes the contender the holder of permits, so many times (nil: once), with as many fences as reserve says (nil: one).
-- Returns the reply of acquire.lua.
local function grant_caller(s, permits, reserve, holds)
  local fence, reserved, err = grant(s, ARGV[4], permits, s.now + ARGV[3], tonumber(reserve) or 1, holds)
  return err or (reserved > 1 or holds and holds > 1) and {fence, reserved, holds or 1} or fence
end

-- Returns how many of so many holds the contender, which has the first, has already.
local function holds_of_caller(s, asked)
  local holds = 1
  while holds < (tonumber(asked) or 1) and is_held(s, member(hold_token(ARGV[4], holds + 1), 1)) do holds = holds + 1 end
  return holds
end

-- Gives the contender its permits, if they are free, as often as they are, but no more than 1000 at once. It has none yet.
-- unwanted  see serve
-- reserve   see grant_caller
-- asked     how many holds it asks for; nil: one
-- Sets rest, how many permits are free. Returns the reply of acquire.lua; nil: it has to wait
local function admit(s, unwanted, reserve, asked)
  local permits, entry = tonumber(ARGV[5]), ARGV[6]
  s.rest = free(s)
  if not unwanted or permits > s.rest then return nil end
  prove_rights(s, member(ARGV[4], 1))
  local holds = math.min(tonumber(asked) or 1, math.floor(math.min(s.rest, 1000) / permits)) -- Lua passes some thousand arguments at most
  local reply = grant_caller(s, permits, reserve, holds)
  local granted = type(reply) == 'number' or not reply.err
  if granted and ARGV[7] == '1' and redis.pcall('LREM', s.queue, 1, entry) == 1 then serve(s, nil, true) end -- what is left is the next one's
  return reply
end

-- Gives the contender its place, if it queues. Returns the reply of acquire.lua.
local function refuse(s)
  local first, left = look(s)
  local taken = s.limit - s.rest
  if ARGV[6] == '' then return {token_of(first), left, taken, s.limit} end
  return {token_of(first), left, taken, s.limit, tonumber(s.time[1]), tonumber(s.time[2]),
    enqueue(s.queue, ARGV[6], left, ARGV[3], ARGV[7] == '1')} -- enqueue.lua
end
