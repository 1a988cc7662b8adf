-- Remove items for good, the oldest first. ARGV: 3 queue; 4 states as rows; 5 how many. Answers how many were.

local queue, limit, refs = ARGV[3], tonumber(ARGV[5]), {}
local function add(found) for _, ref in ipairs(found) do refs[#refs + 1] = ref end end
for _, row in ipairs(unpacked(ARGV[4], 1)) do
  if row[1] == 'ready' then
    add(call('ZRANGE', P .. 'w:' .. queue, 0, limit - 1))
    add(lapsed_of(queue, 10000))
  else
    add(call('ZRANGE', P .. row[1] .. ':' .. queue, 0, limit - 1))
  end
end
table.sort(refs)
local purged = math.min(limit, #refs)
for at = 1, purged do remove(read(id_of(refs[at]))) end
if purged > 0 then wake() end
return purged
