-- guard: whether this server may vote. It makes two functions for the scripts that are appended to it.
--
-- A server that may have forgotten a lock must not vote before that lock has expired. It knows by a
-- hash next to the locks, the guard, which is lost when they are lost:
--   run   the run_id of the process that wrote it. Another process may know less, also if it has
--         loaded something (an AOF that ends early, a replica's copy)
--   past  master_replid2: the history that this process took over when it was last promoted. A primary
--         that was a replica for a while knows only what its primary knew. Empty: never promoted, or
--         Redis has dropped the id (no replica for repl-backlog-ttl)
--   seen  master_replid when run and past were last compared. A process makes a new one when it starts
--         and when it is promoted. So a primary whose master_replid is still the seen one is the same
--         process, not promoted since: run and past need not be read again
--   gen   the generation's name. A generation is a time in which nothing was forgotten; a new one begins
--         where run or past differ, or the hash is missing. For fences
--   born  when the generation began, in ms of the server's time; 0: it was bootstrapped
--   max   the longest TTL that any client has brought, in ms
--   new   1: bootstrapped, so that a counter that is missing is not lost: it was never there, or has expired
--   why   why the generation began: "empty" or "restarted"
-- The server votes from born + max on. max may grow later: a client with a longer TTL may have been
-- granted it before the generation began.

-- guard reads the hash at key, and changes nothing. longest is the longest TTL that the client
-- knows of, in ms.
-- Returns  g: the guard as it must be now. g.wait, ms: above 0 the server does not vote, and g.why says why.
--             g.fresh: a generation begins. g.us: the server's time
--          nil, error: GUARD, or READONLY of a replica, which may let itself be written
local function guard(key, longest)
  local info = redis.pcall('INFO', 'replication')
  if type(info) == 'table' then
    if not string.find(info.err, 'is not supported', 1, true) then -- by an imitation, which has no run_id
      return nil, redis.error_reply('GUARD the restart guard needs INFO: allow this user +info, or set WithoutGuard: ' .. info.err)
    end
    info = ''
  elseif not string.find(info, 'role:master', 1, true) then -- what a replica has may be out of date, also if it can be written
    return nil, redis.error_reply('READONLY this server is a replica, and only a primary votes')
  end
  local seen, run, past, gen, born, max, new, why = unpack(redis.call('HMGET', key, 'seen', 'run', 'past', 'gen', 'born', 'max', 'new', 'why'))
  local id, actual, promoted = seen, run, past or ''
  if not (seen and string.find(info, 'master_replid:' .. seen .. '\r', 1, true)) then
    id = string.match(info, 'master_replid:(%w+)') or 'none'
    actual = info ~= '' and string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') or ''
    promoted = string.match(info, 'master_replid2:0*(%w*)') or '' -- Redis writes zeros: never promoted
  end
  local time = redis.call('TIME')
  local now, us = time[1] * 1000 + math.floor(time[2] / 1000), time[1] * 1000000 + time[2]
  local g = {seen = id, run = actual, past = promoted, gen = gen, new = new == '1', why = why or 'empty', us = us}

  local stored = math.min(tonumber(max) or 0, 86400000) -- 24 h: no lock lasts longer, whatever is written here
  g.max = math.max(stored, tonumber(longest))
  g.born = tonumber(born)
  if not run or not gen or not g.born then
    g.why, g.fresh = 'empty', true
  elseif run ~= actual or promoted ~= '' and past ~= promoted then
    g.why, g.fresh = 'restarted', true
  elseif g.born > now then -- the clock was set back: how much has passed since is not known
    g.born, g.changed = now, true
  end
  if g.fresh then
    g.gen, g.born, g.new = actual .. ':' .. string.format('%.0f', us), now, false
  end
  g.changed = g.changed or g.fresh or g.max > stored or seen ~= id or (past or '') ~= promoted
  g.wait = g.born + g.max - now
  return g
end

-- keep writes what guard returned, if that differs from what is there.
local function keep(key, g)
  if g.changed then
    redis.call('HSET', key, 'seen', g.seen, 'run', g.run, 'past', g.past, 'gen', g.gen, 'born', string.format('%.0f', g.born),
      'max', string.format('%.0f', g.max), 'new', g.new and 1 or 0, 'why', g.why)
  end
end
