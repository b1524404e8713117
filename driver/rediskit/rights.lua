-- rights: which commands the user may not run on a key, from scripts. Changes nothing that
-- lasts: the key is nobody's, and is not there before or afterwards.
--
-- KEYS[1]  the key
-- ARGV[1]  the channel to which a message that nobody hears may go; empty: none
-- ARGV[i]  i = 2 … n: a command
--
-- Returns those that are forbidden, or unknown: {command, what the server says, …}
local refused = {}

-- Before Redis 7.0 there is no other way to find out than to run it: with what makes no
-- difference to a key that is not there, or is undone at once.
local harmless = {
  SET = {'-', 'XX'}, PEXPIRE = {'1'}, PEXPIREAT = {'1'}, LINDEX = {'0'}, LPOS = {'-'}, LREM = {'0', '-'}, RPUSH = {'-'},
  HGET = {'-'}, HMGET = {'-'}, HDEL = {'-'}, HSET = {'-', '-'},
  ZRANGE = {'0', '0'}, ZADD = {'XX', '1', '-'}, ZREM = {'-'}, ZREMRANGEBYSCORE = {'1', '0'}, ZSCORE = {'-'}, ZCOUNT = {'0', '0'},
}
local keyless = {TIME = {}, PUBLISH = {ARGV[1], ''}}
local undone = {RPUSH = 'LPOP', HSET = 'DEL'} -- by what

local function try(command)
  local args = keyless[command] or {KEYS[1], unpack(harmless[command] or {})}
  if redis.acl_check_cmd then -- Redis 7.0
    local known, may = pcall(redis.acl_check_cmd, command, unpack(args))
    if not known then return 'the server has no such command' end
    return not may and '' or nil
  end
  local undo = undone[command]
  if undo and type(redis.pcall(undo, KEYS[1])) == 'table' then return nil end -- it would stay; and try(undo) reports that
  local said = redis.pcall(command, unpack(args))
  if undo then redis.call(undo, KEYS[1]) end
  return type(said) == 'table' and said.err or nil
end

for i = 2, #ARGV do
  local why = try(ARGV[i])
  if why then
    table.insert(refused, ARGV[i])
    table.insert(refused, why)
  end
end
return refused
