-- What time alone does: locks expire, lives end. Each call does a bounded part of it, the most overdue first.

local SWEPT = 200

local function count_death(it)
  local deaths = tonumber(it.d or 0) + 1
  unlock(it)
  change(it, {d = deaths})
  if deaths >= 3 then
    conclude(it, 'dead', killed_workers(deaths))
  elseif is_out_of_attempts(it) then
    conclude(it, 'dead', gave_up(tonumber(it.a), LOCK_EXPIRED))
  else
    change(it, {c = LOCK_EXPIRED})
    admit(it)
  end
end

-- Where the clock was set back a lock would last for ever: it gets one more length, in which to be renewed.
local function mend_locks()
  local mended = true
  for _, queue in ipairs(call('SMEMBERS', P .. 'queues')) do
    local latest = call('ZREVRANGEBYSCORE', P .. 'l:' .. queue, '+inf', '(' .. NOW, 'LIMIT', 0, 1000)
    mended = mended and #latest < 1000
    for _, ref in ipairs(latest) do
      local key = P .. 'i:' .. id_of(ref)
      local lock, until_ = unpack(call('HMGET', key, 'l', 'u'))
      if lock and until_ - 2 * lock > NOW then
        call('HSET', key, 'u', NOW + lock)
        call('ZADD', P .. 'l:' .. queue, NOW + lock, ref)
      end
    end
  end
  return mended
end

local function bury_past_life(limit)
  local past = call('ZRANGEBYSCORE', P .. 'ends', '-inf', NOW, 'LIMIT', 0, limit)
  for _, ref in ipairs(past) do
    local it = read(id_of(ref))
    withdraw(it)
    conclude(it, 'dead', past_life(it))
  end
  return #past
end

local function sweep()
  local last = tonumber(call('HGET', META, 'clock') or 0)
  if NOW >= last + 1000 or (NOW < last and mend_locks()) then call('HSET', META, 'clock', NOW) end
  for _, queue in ipairs(call('SMEMBERS', P .. 'queues')) do
    for _, ref in ipairs(call('ZRANGEBYSCORE', P .. 'l:' .. queue, '-inf', NOW, 'LIMIT', 0, SWEPT)) do
      count_death(read(id_of(ref)))
    end
  end
  bury_past_life(SWEPT)
end
