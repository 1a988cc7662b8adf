-- One small step of retention. ARGV: 3 retention_ms; 4 how many of each kind.
-- Answers how many events and items were removed, and how many lives had ended.

local retention, limit = tonumber(ARGV[3]), tonumber(ARGV[4])

local function overdue(index, score, left)
  return call('ZRANGEBYSCORE', P .. index, '-inf', '(' .. score, 'LIMIT', 0, left)
end

local removed = 0
for _, which in ipairs({{'gone', NOW}, {'old', NOW - retention}, {'oldk', NOW - math.max(retention, DAY_MS)}}) do
  for _, ref in ipairs(overdue(which[1], which[2], limit - removed)) do
    remove(read(id_of(ref)))
    removed = removed + 1
  end
end
local events = overdue('eo', NOW - retention, limit)
for _, seq in ipairs(events) do
  local id, name = unpack(call('HMGET', P .. 'e:' .. seq, 'id', 'name'))
  call('DEL', P .. 'e:' .. seq)
  call('ZREM', P .. 'eo', seq)
  call('ZREM', P .. 'ev', seq)
  call('ZREM', P .. 'en:' .. name, seq)
end
local expired = bury_past_life(limit)
if removed + expired > 0 then wake() end
return {#events, removed, expired}
