-- each: the replies of a joint script: see strategy.NewJointScript. Prepended to such scripts.
--
-- n        how many callers there are
-- answer   answer(i) is the reply to caller i; an error in it is that caller's alone, because
--          what was done for the others stands
-- answers  replies that are known already
--
-- Returns  the reply to a single caller, or an array with the reply to each of several
local function each(n, answer, answers)
  if n == 1 then return answer(1) end
  for i = 1, n do
    if answers[i] == nil then
      local ok, told = pcall(answer, i)
      if not ok then
        told = {err = type(told) == 'table' and told.err or 'ERR ' .. tostring(told)} -- a table since Redis 7.0
      end
      answers[i] = told or false
    end
  end
  return answers
end
