-- Enqueue what several callers ask for, of each caller all or nothing.
-- ARGV: 3 a row for each caller with its new items as rows.
-- Answers for each caller what became of each item, or the place of one whose key is another payload's and its holder.

local answers, some = {}, false
for at, given in ipairs(unpacked(ARGV[3], 1)) do
  local rows = unpacked(given[1], NEW_WIDTH)
  local judged, place, holder = judge(rows)
  if judged then
    some = put_in(rows, judged) > 0 or some
    answers[at] = packed({told(judged)}, 3)
  else
    answers[at] = packed({nil, place, holder}, 3)
  end
end
if some then wake() end
return table.concat(answers)
