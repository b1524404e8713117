-- each: the answers of a script that serves several callers at once: see NewJointScript.
-- Prepended to the scripts that do.
--
-- n        how many callers there are
-- answer   answer(i) is what caller i is told; a script's error in it is that caller's alone,
--          for what has been done for the others stands
-- answers  of whom has been answered already
--
-- Returns what is told to a single caller, or an array of what is told to each of several.
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
