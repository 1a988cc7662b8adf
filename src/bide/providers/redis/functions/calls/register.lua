-- Declare subscriptions. ARGV: 3 rows of name, event, kind, target, within_ms, the same for people, whether ordered, and
-- max_attempts. Answers, as rows, the names that live.

local living = {}
for _, row in ipairs(unpacked(ARGV[3], 8)) do
  local key = P .. 's:' .. row[1]
  local event, kind, target, ended = unpack(call('HMGET', key, 'event', 'kind', 'target', 'ended'))
  if not event then
    call('SADD', P .. 'subs', row[1])
    call('HSET', key, 'created', NOW)
  elseif event ~= row[2] or kind ~= row[3] or target ~= row[4] then
    call('SREM', P .. 'hear:' .. event, row[1])
    call('HDEL', key, 'ended', 'why')
    ended = nil
  end
  call('HSET', key, 'event', row[2], 'kind', row[3], 'target', row[4], 'within', row[5], 'text', row[6], 'declared', NOW)
  if row[7] then call('HSET', key, 'ordered', 1) else call('HDEL', key, 'ordered') end
  if row[8] then call('HSET', key, 'most', row[8]) else call('HDEL', key, 'most') end
  if not ended then
    call('SADD', P .. 'hear:' .. row[2], row[1])
    living[#living + 1] = packed({row[1]}, 1)
  end
end
return table.concat(living)
