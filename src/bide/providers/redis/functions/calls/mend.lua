-- Mend by hand. ARGV: 3 what is done, "requeue" or "discard"; 4 ids as rows; 5 the reason of a discard.
-- Answers, as rows, the ids that it was done to.

local mended = {}
for _, row in ipairs(unpacked(ARGV[4], 1)) do
  local it = read(row[1])
  if it and ARGV[3] == 'requeue' and it.z then
    begin_anew(it)
    mended[#mended + 1] = packed({it.id}, 1)
  elseif it and ARGV[3] == 'discard' and not it.z and (not it.t or tonumber(it.u) <= NOW) then
    if it.t then unlock(it) else withdraw(it) end
    conclude(it, 'dead', ARGV[5])
    mended[#mended + 1] = packed({it.id}, 1)
  end
end
if #mended > 0 then wake() end
return table.concat(mended)
