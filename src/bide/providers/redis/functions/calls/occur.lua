-- Make an instant of a schedule happen once. ARGV: 3 name; 4 the instant; 5 a row of the item that it enqueues.
-- Answers "1" or "0", or, where the item's key is another payload's, the id of the item that has it as a row.

local kept = call('HGET', P .. 'schedules', ARGV[3])
if not kept then return '0' end
local rule, last = unpack(unpacked(kept, 2)[1])
if tonumber(last) >= tonumber(ARGV[4]) then return '0' end
local rows = unpacked(ARGV[5], NEW_WIDTH)
local judged, _, holder = judge(rows)
if not judged then return packed({holder}, 1) end
if put_in(rows, judged) > 0 then wake() end
call('HSET', P .. 'schedules', ARGV[3], packed({rule, ARGV[4]}, 2))
return '1'
