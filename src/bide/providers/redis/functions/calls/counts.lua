-- How many items of each queue are in each state, and since when the oldest could be had. Answers rows of queue,
-- ready, running, done, dead, and that instant.

local MOST_LAPSED = 1000

local rows = {}
local queues = call('SMEMBERS', P .. 'queues')
for _, queue in ipairs(queues) do
  local oldest
  local function consider(instant)
    if instant and instant <= NOW and (not oldest or instant < oldest) then oldest = instant end
  end
  for _, ref in ipairs(lapsed_of(queue, MOST_LAPSED)) do
    local visible, enqueued = unpack(call('HMGET', P .. 'i:' .. id_of(ref), 'v', 'e'))
    consider(tonumber(visible or enqueued))
  end
  for _, name in ipairs(call('SMEMBERS', P .. 'n:' .. queue)) do
    local lane = joined(queue, name)
    consider(tonumber(call('ZRANGE', P .. 'r:' .. lane, 0, 0, 'WITHSCORES')[2]))
    consider(tonumber(call('ZRANGE', P .. 'v:' .. lane, 0, 0, 'WITHSCORES')[2]))
  end
  consider(tonumber(call('ZRANGE', P .. 'pv:' .. queue, 0, 0, 'WITHSCORES')[2]))
  local lapsed = call('ZCOUNT', P .. 'l:' .. queue, '-inf', NOW)
  rows[#rows + 1] = packed({
    queue,
    call('ZCARD', P .. 'w:' .. queue) + lapsed,
    call('ZCARD', P .. 'l:' .. queue) - lapsed,
    call('ZCARD', P .. 'done:' .. queue),
    call('ZCARD', P .. 'dead:' .. queue),
    oldest and NOW - oldest,
  }, 6)
end
return table.concat(rows)
