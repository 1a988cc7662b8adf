-- Enqueue what was promised, if that can still be kept. ARGV: 3 rows; 4 what their callers were told.
-- Answers whether it could.

local rows = unpacked(ARGV[3], NEW_WIDTH)
local judged = judge(rows)
if not judged or told(judged) ~= ARGV[4] then return 0 end
if put_in(rows, judged) > 0 then wake() end
return 1
