-- play: one row of a table in one step, so that no time passes between what is before, the script
-- and what is after, and TTLs are exact. The script under test stands in the function below. It
-- sees a "redis" of ours, which passes commands to the server, notes them, and can refuse them.
--
-- ARGV[1]  the row, in JSON
-- Returns  {reply, keys after, messages published, commands, now in microseconds, microseconds that passed}
local row, real = cjson.decode(ARGV[1]), redis
local began = real.call('TIME')
local time = row.time
local now = time[1] * 1000000 + time[2]
local ahead = math.floor((began[1] * 1000000 + began[2]) / 1000) - math.floor(now / 1000) -- ms

-- #n is a time in microseconds, n from now; @n one in milliseconds.
local function words(list)
  for i, word in ipairs(list) do
    local unit, n = string.match(word, '^([#@])(-?%d+)$')
    if unit then
      list[i] = string.format('%.0f', (unit == '#' and now or math.floor(now / 1000)) + n)
    end
  end
  return list
end

if row.flush then real.call('FLUSHALL') end
for _, line in ipairs(row.before) do
  words(line)
  local ttl
  if line[1] ~= 'SET' and line[#line - 1] == 'PX' then
    ttl = table.remove(line)
    table.remove(line)
  end
  real.call(unpack(line))
  if ttl then real.call('PEXPIRE', line[2], ttl) end
end

local KEYS, ARGV, ran, heard = row.keys, words(row.args), {}, {}

local function forbidden(command, key)
  return row.forbid[command] or key and row.forbid[command .. '/' .. key]
end

local function try(command, ...)
  local key = ...
  table.insert(ran, command)
  if forbidden(command, key) then return {err = 'NOPERM forbidden'} end
  if row.writes[command] then return {err = 'READONLY a replica'} end
  if row.gone[command] then
    real.call('DEL', key)
    if command == 'PEXPIREAT' then return 1 end -- its time has passed, so it has deleted the key itself
  end
  if command == 'TIME' then return {time[1], time[2]} end
  if command == 'PUBLISH' then
    table.insert(heard, {...})
    return row.listening[key] and 1 or 0
  end
  if command == 'PUBSUB' then -- NUMSUB
    local channel = select(2, ...)
    return {channel, row.listening[channel] and 1 or 0}
  end
  local args, date = {...}, command == 'PEXPIREAT' and 2
  for i, arg in ipairs(args) do
    if arg == 'PXAT' then date = i + 1 end
  end
  if date then args[date] = string.format('%.0f', args[date] + ahead) end -- of the row's time: make it one of the server's
  return real.pcall(command, unpack(args))
end

local raised -- the last error that a command has raised
local redis = {
  error_reply = real.error_reply,
  log = real.log, -- with which the mutator sees what runs
  pcall = try,
  call = function(...)
    local reply = try(...)
    if type(reply) == 'table' and reply.err then
      raised = reply
      error(row.old and reply.err or reply, 0)
    end
    return reply
  end,
}
if not row.old then
  redis.acl_check_cmd = function(command, ...) -- the server's own raises an error about a command that it does not know
    return real.acl_check_cmd(command, ...) and not forbidden(command, (...))
  end
end

-- Some servers make a text of every error. Here pcall returns the table, unless the row is old.
local call = pcall
local function caught(ok, ...)
  if not ok and raised and not row.old then return false, raised end
  return ok, ...
end
local function pcall(...)
  raised = nil
  return caught(call(...))
end

-- An error that a command raises keeps its first word, but of one that the script raises the servers make an ERR.
local throw = error
local function error(...)
  raised = nil
  throw(...)
end

local function script()
--SCRIPT--
end
local ok, reply = pcall(script)
if not ok and type(reply) ~= 'table' then reply = {err = (raised and '' or 'ERR ') .. tostring(reply)} end
if reply == nil then reply = false end

local state, keys = {}, real.call('KEYS', '*')
table.sort(keys)
for _, key in ipairs(keys) do
  local kind, line = real.call('TYPE', key).ok, nil
  if kind == 'string' then
    line = {'SET', key, real.call('GET', key)}
  elseif kind == 'list' then
    line = {'RPUSH', key, unpack(real.call('LRANGE', key, 0, -1))}
  elseif kind == 'zset' then -- in the order of its scores
    local members = real.call('ZRANGE', key, 0, -1, 'WITHSCORES')
    line = {'ZADD', key}
    for i = 1, #members, 2 do
      table.insert(line, members[i + 1])
      table.insert(line, members[i])
    end
  else -- a hash
    local pairs, fields = real.call('HGETALL', key), {}
    for i = 1, #pairs, 2 do table.insert(fields, {pairs[i], pairs[i + 1]}) end
    table.sort(fields, function(a, b) return a[1] < b[1] end)
    line = {'HSET', key}
    for _, field in ipairs(fields) do
      table.insert(line, field[1])
      table.insert(line, field[2])
    end
  end
  local left = real.call('PTTL', key)
  if left ~= -1 then
    table.insert(line, 'PX')
    table.insert(line, left)
  end
  table.insert(state, line)
end
local ended = real.call('TIME')
local passed = (ended[1] - began[1]) * 1000000 + ended[2] - began[2]
return {reply, state, heard, ran, string.format('%.0f', now), passed}
