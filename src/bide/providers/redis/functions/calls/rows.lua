-- What is kept of polls. ARGV: 3 their names as rows. Answers rows.

local FIELDS = {'due', 'nb', 'hold', 'out', 'every', 'gen', 'digest', 'changed', 'called', 'answered', 'fails', 'since', 'err',
                'paused', 'event', 'etag', 'modified', 'decl', 'valid'}

local rows = {}
for _, given in ipairs(unpacked(ARGV[3], 1)) do
  local row, is_there = poll(given[1])
  if is_there then
    local fields = {row.name}
    for at, field in ipairs(FIELDS) do fields[at + 1] = row[field] end
    rows[#rows + 1] = packed(fields, 20)
  end
end
return table.concat(rows)
