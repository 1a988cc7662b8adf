-- Events in order of seq. ARGV: 3 seq that all are after; 4 names as rows, or empty for all; 5 whether by name; 6 limit;
-- 7 whether the newest. Answers rows, each with the payload of the event before it where ARGV[8] asks for it.

local limit, newest = tonumber(ARGV[6]), ARGV[7] == '1'
local indexes = {P .. 'ev'}
if ARGV[5] == '1' then
  indexes = {}
  for at, row in ipairs(unpacked(ARGV[4], 1)) do indexes[at] = P .. 'en:' .. row[1] end
end
local seqs = {}
for _, index in ipairs(indexes) do
  local found
  if newest then
    found = call('ZREVRANGEBYSCORE', index, '+inf', '(' .. ARGV[3], 'LIMIT', 0, limit)
  else
    found = call('ZRANGEBYSCORE', index, '(' .. ARGV[3], '+inf', 'LIMIT', 0, limit)
  end
  for _, seq in ipairs(found) do seqs[#seqs + 1] = tonumber(seq) end
end
table.sort(seqs)
local first = newest and math.max(#seqs - limit, 0) + 1 or 1
local rows = {}
for at = first, math.min(#seqs, first + limit - 1) do
  local fields = call('HMGET', P .. 'e:' .. string.format('%.0f', seqs[at]), unpack(EVENT_FIELDS))
  fields[10] = ARGV[8] == '1' and fields[10] and call('HGET', P .. 'e:' .. fields[10], 'payload')
  rows[#rows + 1] = packed(fields, 10)
end
return table.concat(rows)
