-- Deliver again to a subscriber that lives. ARGV: 3 its name; 4 rows of deliveries. Answers how many were made, or began
-- anew.

local replayed = 0
local event, ended = unpack(call('HMGET', P .. 's:' .. ARGV[3], 'event', 'ended'))
if not event or ended then return 0 end
for _, row in ipairs(unpacked(ARGV[4], NEW_WIDTH)) do
  local it = read(row[1])
  if not it then
    put_in({row}, (judge({row})))
    replayed = replayed + 1
  elseif it.z then
    begin_anew(it)
    replayed = replayed + 1
  end
end
if replayed > 0 then wake() end
return replayed
