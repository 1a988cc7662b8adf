-- The last instants of schedules. ARGV: 3 rows of name, rule, and the instant to begin after where it is new or of
-- another rule. Answers the instants, as rows in that order.

local answers = {}
for at, row in ipairs(unpacked(ARGV[3], 3)) do
  local kept = call('HGET', P .. 'schedules', row[1])
  local rule, last
  if kept then rule, last = unpack(unpacked(kept, 2)[1]) end
  if rule ~= row[2] then
    last = row[3]
    call('HSET', P .. 'schedules', row[1], packed({row[2], last}, 2))
  end
  answers[at] = packed({last}, 1)
end
return table.concat(answers)
