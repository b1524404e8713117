-- each: the replies of a joint script: see driver.NewJointScript. Prepended to acquire.lua and
-- release.lua.
--
-- n        how many callers there are
-- answer   answer(i) is the reply to caller i; an error in it is that caller's alone, because
--          what was done for the others stands
-- answers  replies that are known already
--
-- Returns  the reply to a single caller, or an array with the reply to each of several
local function each(n, answer, answers)
  if n == 1 then return answers[1] or answer(1) end
  for i = 1, n do
    if answers[i] == nil then
      local ok, reply = pcall(answer, i)
      if not ok then
        reply = {err = type(reply) == 'table' and reply.err or tostring(reply)} -- servers differ in what pcall returns
      end
      answers[i] = reply or false
    end
  end
  return answers
end
