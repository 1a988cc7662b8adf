-- The members of a set, as rows. ARGV: 3 "polls" or "subs".

local rows = call('SMEMBERS', P .. ARGV[3])
for at, member in ipairs(rows) do rows[at] = packed({member}, 1) end
return table.concat(rows)
