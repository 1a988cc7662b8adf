-- Subscriptions as they are kept. ARGV: 3 their names as rows. Answers rows.

local rows = {}
for _, row in ipairs(unpacked(ARGV[3], 1)) do
  local kept, is_there = read_hash(P .. 's:' .. row[1])
  if is_there then
    rows[#rows + 1] = packed({row[1], kept.event, kept.kind, kept.target, kept.within, kept.ordered, kept.most, kept.created,
                              kept.declared, kept.ended, kept.why}, 11)
  end
end
return table.concat(rows)
