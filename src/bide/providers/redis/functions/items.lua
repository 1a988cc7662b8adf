-- Work items and their indexes.
--
-- An item is the hash "i:<id>", in which a field that would say the usual is left out:
--   s seq, q queue, n name, p payload, e enqueued_at, v visible_at (else e), h the delay that v was made from
--   (else 0; "-" for an instant of the user's), i priority, m max_attempts, w within_ms and wt the same for people,
--   x expires_at, o order_key, k key, g limit_key, r keep_ms, sp whether it has any of these four,
--   a attempts, d deaths, b given_back;
--   running: t nonce of its token, f fetch token, u locked until, l lock_ms;
--   ended: z done or dead, y ended_at, c the last error, res its result.
-- In indexes it is "<seq>:<id>", with a seq of thirteen digits, so that equal scores are in the order of enqueueing.
--   w:<queue> waits, by seq                        l:<queue> running, by the end of the lock
--   done:<queue>, dead:<queue> by seq              queues: those that have any
--   n:<queue> names of which something waits; of queue and name, by rank:
--     r: neither limit key nor priority   rp: a priority   rm: a limit key   rk: each limit key (ks: which there are)
--     v: waits for its instant, by that; "back" has these by the instant from which on it is of a clock set back
--   pv:<queue> those of rp and rm by visible_at
--   o:<queue, order key> the line of what waits, by seq; oh:<queue> whose turn it is in each line
--   kr:<queue> how many are running of each limit key (":" and the key), and of all of them ("t")
--   f:<fetch token> what it holds; u:<queue, name, key> who has the key; ends: what waits, by expires_at
--   gone, old, oldk: what ended, for pruning
--   hungry, starved: somebody looked in vain, and waits; starved: perhaps for a place that a limit gives

local STEP_MS = 60000
local DAY_MS = 86400000
local DELIVERIES = 'deliveries'

local function id_of(ref) return string.sub(ref, 15) end

local function read(id)
  local it, is_there = read_hash(P .. 'i:' .. id)
  if not is_there then return nil end
  it.id = id
  it.ref = it.s .. ':' .. id
  return it
end

local function change(it, fields)
  local flat = {}
  for field, value in pairs(fields) do
    it[field] = type(value) == 'number' and string.format('%.0f', value) or value
    flat[#flat + 1] = field
    flat[#flat + 1] = value
  end
  call('HSET', P .. 'i:' .. it.id, unpack(flat))
end

local function drop(it, ...)
  for _, field in ipairs({...}) do it[field] = nil end
  call('HDEL', P .. 'i:' .. it.id, ...)
end

local function visible_at(it) return tonumber(it.v or it.e) end

local function hold_ms(it)
  if it.h == '-' then return nil end
  return tonumber(it.h or 0)
end

local function is_visible(it)
  local visible, hold = visible_at(it), hold_ms(it)
  return visible <= NOW or (hold ~= nil and visible - 2 * hold > NOW)
end

local function is_out_of_attempts(it)
  return it.m ~= nil and tonumber(it.a or 0) >= tonumber(it.m)
end

-- Into the sets that fetches take from.
local function make_ready(it)
  local lane, visible = joined(it.q, it.n), visible_at(it)
  local rank = visible - STEP_MS * tonumber(it.i or 0)
  if it.g then
    call('ZADD', P .. 'rm:' .. lane, rank, it.ref)
    call('ZADD', P .. 'rk:' .. joined(it.q, it.n, it.g), rank, it.ref)
    call('ZADD', P .. 'ks:' .. lane, 0, it.g)
  elseif it.i then
    call('ZADD', P .. 'rp:' .. lane, rank, it.ref)
  else
    call('ZADD', P .. 'r:' .. lane, rank, it.ref)
  end
  if it.g or it.i then call('ZADD', P .. 'pv:' .. it.q, visible, it.ref) end
end

local function no_more_ready(it)
  local lane = joined(it.q, it.n)
  if it.g then
    local of_key = P .. 'rk:' .. joined(it.q, it.n, it.g)
    call('ZREM', P .. 'rm:' .. lane, it.ref)
    call('ZREM', of_key, it.ref)
    if call('EXISTS', of_key) == 0 then call('ZREM', P .. 'ks:' .. lane, it.g) end
  else
    call('ZREM', P .. (it.i and 'rp:' or 'r:') .. lane, it.ref)
  end
  if it.g or it.i then call('ZREM', P .. 'pv:' .. it.q, it.ref) end
end

local function tidy_lane(queue, name)
  local lane = joined(queue, name)
  if call('EXISTS', P .. 'r:' .. lane, P .. 'rp:' .. lane, P .. 'rm:' .. lane, P .. 'v:' .. lane) == 0 then
    call('SREM', P .. 'n:' .. queue, name)
  end
end

local function tidy_queue(queue)
  if call('EXISTS', P .. 'w:' .. queue, P .. 'l:' .. queue, P .. 'done:' .. queue, P .. 'dead:' .. queue) == 0 then
    call('SREM', P .. 'queues', queue)
  end
end

-- Where fetches find it once its instant has come. For what waits, and is behind nothing.
local function place(it)
  if is_visible(it) then
    make_ready(it)
  else
    local hold = hold_ms(it)
    call('ZADD', P .. 'v:' .. joined(it.q, it.n), visible_at(it), it.ref)
    if hold then call('ZADD', P .. 'back', visible_at(it) - 2 * hold, it.ref) end
  end
  call('SADD', P .. 'n:' .. it.q, it.n)
end

local function unplace(it)
  if call('ZREM', P .. 'v:' .. joined(it.q, it.n), it.ref) == 1 then
    call('ZREM', P .. 'back', it.ref)
  else
    no_more_ready(it)
  end
  tidy_lane(it.q, it.n)
end

local function promote(it)
  call('ZREM', P .. 'v:' .. joined(it.q, it.n), it.ref)
  call('ZREM', P .. 'back', it.ref)
  make_ready(it)
end

-- Of a line only the first that waits is placed, and none while one of it is running.
local function line_up(queue, key)
  local holders = P .. 'oh:' .. queue
  local holder = call('HGET', holders, key)
  if holder and call('HEXISTS', P .. 'i:' .. id_of(holder), 't') == 1 then return end
  local first = call('ZRANGE', P .. 'o:' .. joined(queue, key), 0, 0)[1]
  if first and first == holder then return end
  if holder then unplace(read(id_of(holder))) end
  if not first then
    call('HDEL', holders, key)
    return
  end
  call('HSET', holders, key, first)
  place(read(id_of(first)))
end

local function leave_line(it)
  stirred = true
  if call('HGET', P .. 'oh:' .. it.q, it.o) == it.ref then call('HDEL', P .. 'oh:' .. it.q, it.o) end
  line_up(it.q, it.o)
end

-- Make it wait, as its fields say.
local function admit(it)
  stirred = true
  call('ZADD', P .. 'w:' .. it.q, it.s, it.ref)
  if it.x then call('ZADD', P .. 'ends', it.x, it.ref) end
  if not it.o then
    place(it)
    return
  end
  call('ZADD', P .. 'o:' .. joined(it.q, it.o), it.s, it.ref)
  leave_line(it)
end

-- Take what waits out of everything; whoever calls has its line lined up.
local function withdraw(it)
  call('ZREM', P .. 'w:' .. it.q, it.ref)
  if it.x then call('ZREM', P .. 'ends', it.ref) end
  if not it.o then
    unplace(it)
    return
  end
  call('ZREM', P .. 'o:' .. joined(it.q, it.o), it.ref)
  if call('HGET', P .. 'oh:' .. it.q, it.o) == it.ref then
    unplace(it)
    call('HDEL', P .. 'oh:' .. it.q, it.o)
  end
end

local function count_running(queue, limit_key, by)
  local counts = P .. 'kr:' .. queue
  if call('HINCRBY', counts, ':' .. limit_key, by) == 0 then call('HDEL', counts, ':' .. limit_key) end
  if call('HINCRBY', counts, 't', by) == 0 then call('HDEL', counts, 't') end
end

-- Its lock holds no more.
local function unlock(it)
  call('ZREM', P .. 'l:' .. it.q, it.ref)
  call('SREM', P .. 'f:' .. it.f, it.ref)
  if it.g then count_running(it.q, it.g, -1) end
  drop(it, 't', 'f', 'u', 'l')
end

-- For how long it stays: what is kept for the retention by the instant of its end, the rest by that of its removal.
local function shelf(it)
  if it.z == 'dead' or it.q == DELIVERIES then return P .. (it.k and 'oldk' or 'old'), tonumber(it.y) end
  return P .. 'gone', it.y + math.max(tonumber(it.r or 0), it.k and DAY_MS or 0)
end

local function shelve(it)
  local index, score = shelf(it)
  call('ZADD', index, score, it.ref)
end

local function unshelve(it)
  local index = shelf(it)
  call('ZREM', index, it.ref)
end

-- For what is neither running nor waiting any more.
local function conclude(it, state, reason)
  change(it, {z = state, y = NOW})
  if reason then change(it, {c = reason}) elseif it.c then drop(it, 'c') end
  call('ZADD', P .. state .. ':' .. it.q, it.s, it.ref)
  shelve(it)
  if it.o then leave_line(it) end
end

-- Leave nothing of it.
local function remove(it)
  if it.t then
    unlock(it)
  elseif it.z then
    unshelve(it)
    call('ZREM', P .. it.z .. ':' .. it.q, it.ref)
  else
    withdraw(it)
  end
  if it.k then
    local holder = P .. 'u:' .. joined(it.q, it.n, it.k)
    if call('GET', holder) == it.id then call('DEL', holder) end
  end
  call('DEL', P .. 'i:' .. it.id)
  if it.o then leave_line(it) end
  tidy_queue(it.q)
end

-- As if it had just been enqueued. For what has ended.
local function begin_anew(it)
  unshelve(it)
  call('ZREM', P .. it.z .. ':' .. it.q, it.ref)
  drop(it, 'a', 'd', 'b', 'h', 'c', 'res', 'z', 'y', 'v', 'x')
  change(it, {e = NOW})
  if it.w then change(it, {x = NOW + it.w}) end
  admit(it)
end
