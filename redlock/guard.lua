-- guard: whether this server may vote. Prepended to the scripts that ask.
--
-- A server that may have forgotten what it granted must not grant again before that has
-- expired. It tells so by a hash that lies beside the locks, and so is lost with them:
--   run   the run_id of the process that wrote it: another run may know less than this
--         one did, also if it has loaded something (an AOF that ends early, a replica's copy)
--   past  the id of the history that this process took over when it was last promoted;
--         empty: never, or it is forgotten, which Redis does when it has had no replica for
--         repl-backlog-ttl. A primary that was a replica for a while knows what its primary did
--   gen   the name of this memory, for fences: of nothing that was known before it is
--         known that it is known still
--   born  when it began, in ms of the server's time; 0: it is known to have lost nothing
--   max   the longest TTL, in ms, that any client has told of
--   new   1: primed, so that what is not there has never been
--   why   why it began: "empty" or "restarted"
--   seen  the replication id that this process had when run and past were last compared.
--         Each process makes one of its own when it starts and when it is promoted, and only a
--         replica has another's: while a primary has the one that was seen, run and past
--         are what they were, and need not be asked for
-- It votes from born + max on. Both count as they are known now: who comes later with a
-- longer TTL may have been granted it before.

-- same tells whether this is the primary, and the process, that was seen under that id.
local function same(info, seen)
  return seen and string.find(info, 'role:master', 1, true) and string.find(info, 'master_replid:' .. seen .. '\r', 1, true)
end

local function clock() -- ms, µs
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000), time[1] * 1000000 + time[2]
end

-- left is how long it will be until a memory votes.
local function left(born, max, now)
  return born + max - now
end

-- guard reads only, except for a longer TTL and the beginning of another memory, which
-- keep writes. g.why and g.wait (ms, above 0) say that it does not vote.
local function guard(key, longest)
  local info = redis.pcall('INFO', 'replication')
  if type(info) == 'table' then
    if not string.find(info.err, 'is not supported', 1, true) then -- an imitation's, which tells no run_id
      return nil, redis.error_reply('GUARD the restart guard needs INFO: allow this user +info, or set WithoutGuard: ' .. info.err)
    end
    info = ''
  end
  local seen, run, past, gen, born, max, new, why = unpack(redis.call('HMGET', key, 'seen', 'run', 'past', 'gen', 'born', 'max', 'new', 'why'))
  local id, actual, promoted = seen, run, past or ''
  if not same(info, seen) then
    id = string.find(info, 'role:master', 1, true) and string.match(info, 'master_replid:(%w+)') or 'none'
    actual = info ~= '' and string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') or ''
    promoted = string.match(info, 'master_replid2:0*(%w*)') or ''
  end
  local now, us = clock()
  local g = {seen = id, run = actual, past = promoted, gen = gen, new = new == '1', why = why or 'empty', us = us}

  local stored = math.min(tonumber(max) or 0, 86400000) -- strategy.MaxTTL: no lock lasts longer, whatever is written here
  g.max = math.max(stored, tonumber(longest))
  g.born = tonumber(born)
  if not run or not gen or not g.born then
    g.why, g.fresh = 'empty', true
  elseif run ~= actual or promoted ~= '' and past ~= promoted then
    g.why, g.fresh = 'restarted', true
  elseif g.born > now then -- the clock was set back: what has passed since is not known
    g.born, g.changed = now, true
  end
  if g.fresh then
    g.gen, g.born, g.new = actual .. ':' .. string.format('%.0f', g.us), now, false
  end
  g.changed = g.changed or g.fresh or g.max > stored or seen ~= id or (past or '') ~= promoted
  g.wait = left(g.born, g.max, now)
  return g
end

local function keep(key, g)
  if g.changed then
    redis.call('HSET', key, 'seen', g.seen, 'run', g.run, 'past', g.past, 'gen', g.gen, 'born', string.format('%.0f', g.born),
      'max', string.format('%.0f', g.max), 'new', g.new and 1 or 0, 'why', g.why)
  end
end
