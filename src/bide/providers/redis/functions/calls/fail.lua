-- Record that a call failed. ARGV: 3 poll; 4 generation; 5 hold_ms; 6 error. Answers whether the claim held.

local row = claimed(ARGV[3], ARGV[4])
if not row then return 0 end
local nb, hold = held(tonumber(ARGV[5]))
write_poll(row, {
  nb = nb, hold = hold, out = false, due = NOW, fails = tonumber(row.fails or 0) + 1, since = row.since or NOW, err = ARGV[6],
})
return 1
