-- What would become of new items. ARGV: 3 rows. Answers as enqueue does for one caller.

local judged, place, holder = judge(unpacked(ARGV[3], NEW_WIDTH))
return judged and packed({told(judged)}, 3) or packed({nil, place, holder}, 3)
