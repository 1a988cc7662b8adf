-- Take what is eligible, or say when something will be.
-- ARGV: 3 queues in this turn's order, each with its limits and the limit key served last; 4 names with how many of
-- each may be taken, and whether that bounds all queues; 5 limit; 6 lock_ms; 7 nonce; 8 fetch token; 9 whether the
-- caller will wait.
-- Answers what was taken, when something will be eligible where nothing was, and the limit keys served last.

local TAKEN_WIDTH = 11
local HUNGRY_MS = 120000  -- longer than anybody waits without looking again

local function promote_due(lines)
  for _, ref in ipairs(call('ZRANGEBYSCORE', P .. 'back', '(' .. NOW, '+inf', 'LIMIT', 0, SWEPT)) do
    promote(read(id_of(ref)))
  end
  for _, line in ipairs(lines) do
    for _, name in ipairs(line.names) do
      local waits = P .. 'v:' .. joined(line.queue, name[1])
      for _, ref in ipairs(call('ZRANGEBYSCORE', waits, '-inf', NOW, 'LIMIT', 0, SWEPT)) do
        promote(read(id_of(ref)))
      end
    end
  end
end

local function lock(taken, lock_ms, nonce, fetch_token)
  local lots, refs, ends = {}, {}, NOW + lock_ms
  for at, it in ipairs(taken) do
    local attempts = tonumber(it.a or 0) + 1
    call('HSET', P .. 'i:' .. it.id, 't', nonce, 'f', fetch_token, 'u', ends, 'l', lock_ms, 'a', attempts)
    it.a = attempts
    refs[at] = it.ref
    local lot = lots[it.q]
    if not lot then
      lot = {refs = {}, locks = {}, lanes = {}}
      lots[it.q] = lot
    end
    lot.refs[#lot.refs + 1] = it.ref
    lot.locks[#lot.locks + 1] = ends
    lot.locks[#lot.locks + 1] = it.ref
    local lane = lot.lanes[it.n]
    if not lane then
      lane = {}
      lot.lanes[it.n] = lane
    end
    if it.g or it.i then no_more_ready(it) else lane[#lane + 1] = it.ref end
    if it.g then count_running(it.q, it.g, 1) end
    if it.x then call('ZREM', P .. 'ends', it.ref) end
    if it.o then call('ZREM', P .. 'o:' .. joined(it.q, it.o), it.ref) end
  end
  call('SADD', P .. 'f:' .. fetch_token, unpack(refs))
  for queue, lot in pairs(lots) do
    call('ZREM', P .. 'w:' .. queue, unpack(lot.refs))
    call('ZADD', P .. 'l:' .. queue, unpack(lot.locks))
    for name, lane in pairs(lot.lanes) do
      if #lane > 0 then call('ZREM', P .. 'r:' .. joined(queue, name), unpack(lane)) end
      tidy_lane(queue, name)
    end
  end
end

-- The end of the first lock that is wanted: of a queue with a limit any, since it frees a place.
local function first_lock(line, names)
  local locks = call('ZRANGE', P .. 'l:' .. line.queue, 0, 99, 'WITHSCORES')
  for at = 1, #locks, 2 do
    if line.is_limited or names[call('HGET', P .. 'i:' .. id_of(locks[at]), 'n')] or at == 199 then
      return tonumber(locks[at + 1])
    end
  end
  return nil
end

local function next_eligible_in(lines, names)
  local first
  local function consider(instant)
    if instant and (not first or instant < first) then first = instant end
  end
  for _, line in ipairs(lines) do
    for _, name in ipairs(line.names) do
      local waits = call('ZRANGE', P .. 'v:' .. joined(line.queue, name[1]), 0, 0, 'WITHSCORES')
      consider(tonumber(waits[2]))
    end
    consider(first_lock(line, names))
  end
  return first and math.max(first - NOW, 0)
end

sweep()
local names, left, wanted, lines, served = unpacked(ARGV[4], 3), {}, {}, {}, {}
for _, name in ipairs(names) do
  wanted[name[1]] = true
  if name[3] then left[name[1]] = tonumber(name[2]) end
end
for at, row in ipairs(unpacked(ARGV[3], 4)) do lines[at] = line_of(row, names) end
promote_due(lines)
for _, line in ipairs(lines) do add_groups(line) end
local taken = choose(lines, tonumber(ARGV[5]), left)
for at, line in ipairs(lines) do
  served[at] = packed({#taken > 0 and line.after or nil}, 1)
end
if #taken == 0 then
  if ARGV[9] == '1' then
    call('SET', P .. 'hungry', 1, 'PX', HUNGRY_MS)
    for _, line in ipairs(lines) do
      if line.is_limited then call('SET', P .. 'starved', 1, 'PX', HUNGRY_MS) end
    end
  end
  local next_in = next_eligible_in(lines, wanted)
  return {'', next_in and string.format('%.0f', next_in) or '', ''}
end
lock(taken, tonumber(ARGV[6]), ARGV[7], ARGV[8])
local rows = {}
for at, it in ipairs(taken) do
  rows[at] = packed({it.id, it.q, it.n, it.p, it.a, it.d, it.e, it.x, it.m, it.b, it.r}, TAKEN_WIDTH)
end
return {table.concat(rows), '', table.concat(served)}
