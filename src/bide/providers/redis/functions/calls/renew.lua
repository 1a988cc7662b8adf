-- Prolong locks. ARGV: 3 rows of id and nonce; 4 lock_ms. Answers a character for each, "1" or "0" (dead).

local lock_ms, answers = tonumber(ARGV[4]), {}
for at, row in ipairs(unpacked(ARGV[3], 2)) do
  local key = P .. 'i:' .. row[1]
  local kept, ends, queue, seq = unpack(call('HMGET', key, 't', 'u', 'q', 's'))
  local held = kept == row[2] and tonumber(ends) > NOW
  if held then
    call('HSET', key, 'u', NOW + lock_ms, 'l', lock_ms)
    call('ZADD', P .. 'l:' .. queue, NOW + lock_ms, seq .. ':' .. row[1])
  end
  answers[at] = held and '1' or '0'
end
return table.concat(answers)
