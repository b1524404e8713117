-- inspect: the owner of the lock, one of its holds, and the last fence. Changes nothing.
--
-- KEYS[1]  the lock
-- KEYS[2]  its fence counter
--
-- Returns  {fence, owner, the token of one hold, how many holds, ms until the last of them ends}
--          {the last fence issued, or 0}: nobody holds the lock. 0 also if the counter has expired
-- Errors   WRONGTYPE, NOLOCK, FENCE
local lock = read_lock(KEYS[1]) -- holds.lua
if lock.err then return lock end
assert_primary(KEYS[1])
if lock.count == 0 then
  local last, err = last_fence(KEYS[2]) -- fence.lua
  return err or {last}
end
local first -- the same one each time
for token in pairs(lock.holds) do
  if not first or token < first then first = token end
end
return {lock.fence, lock.owner, first, lock.count, lock.last - lock.now}
