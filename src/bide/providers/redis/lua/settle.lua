-- needs: store texts items enqueueing
-- Settle by token. ARGV: 3 rows: id, nonce, kind ("k" ack, "a" abandon, "b" bury), then delay_ms, text (of an ack its
-- result, else the error), and whether the attempt counts, or for an ack how many rows of 4 it enqueues; 4 new items.
-- Answers a character that says whether something may have become eligible, and one for each, "1" or "0" (stale); or the place of a new item with a conflicting key and its holder.

local function is_held(id, nonce)
  local kept, ends = unpack(call('HMGET', P .. 'i:' .. id, 't', 'u'))
  return kept == nonce and tonumber(ends) > NOW
end

-- Acks of what leaves nothing behind: everything that they touch is touched once.
local lots = {}

local function collect(it)
  local lot = lots[it.q]
  if not lot then
    lot = {refs = {}, keys = {}, fetches = {}}
    lots[it.q] = lot
  end
  lot.refs[#lot.refs + 1] = it.ref
  lot.keys[#lot.keys + 1] = P .. 'i:' .. it.id
  local fetch = lot.fetches[it.f]
  if not fetch then
    fetch = {}
    lot.fetches[it.f] = fetch
  end
  fetch[#fetch + 1] = it.ref
end

local function in_parts(command, key, members)
  for first = 1, #members, 2000 do
    local last = math.min(first + 1999, #members)
    if key then call(command, key, unpack(members, first, last)) else call(command, unpack(members, first, last)) end
  end
end

local function remove_collected()
  for queue, lot in pairs(lots) do
    in_parts('ZREM', P .. 'l:' .. queue, lot.refs)
    in_parts('DEL', nil, lot.keys)
    for token, refs in pairs(lot.fetches) do in_parts('SREM', P .. 'f:' .. token, refs) end
    tidy_queue(queue)
  end
end

local function ack(id, result)
  local key = P .. 'i:' .. id
  local seq, queue, name, fetch, order_key, own_key, limit_key, keep =
    unpack(call('HMGET', key, 's', 'q', 'n', 'f', 'o', 'k', 'g', 'r'))
  if queue ~= DELIVERIES and not own_key and not keep and not order_key then
    if limit_key then count_running(queue, limit_key, -1) end
    call('HDEL', key, 't')
    collect({id = id, q = queue, n = name, f = fetch, ref = seq .. ':' .. id})
    return
  end
  local it = read(id)
  if queue ~= DELIVERIES and not own_key and not keep then
    remove(it)
    return
  end
  unlock(it)
  if it.r and result then change(it, {res = result}) end
  conclude(it, 'done')
end

local function abandon(it, delay, reason, counts)
  unlock(it)
  if reason then change(it, {c = reason}) end
  if not counts then
    change(it, {a = it.a - 1, b = tonumber(it.b or 0) + 1})
  end
  local ended, why
  if it.q == DELIVERIES then ended, why = unpack(call('HMGET', P .. 's:' .. it.n, 'ended', 'why')) end
  if counts and is_out_of_attempts(it) then
    conclude(it, 'dead', gave_up(tonumber(it.a), it.c))
  elseif ended then
    conclude(it, 'dead', because('the subscription ended', why))
  else
    change(it, {h = delay, v = NOW + delay})
    admit(it)
  end
end

local given, new, at = unpacked(ARGV[3], 6), unpacked(ARGV[4], NEW_WIDTH), 0
local enqueued, acked = {}, {}
for _, row in ipairs(given) do
  local count = row[3] == 'k' and tonumber(row[6] or 0) or 0
  if count > 0 then
    local token = row[2] .. ':' .. row[1]
    if not acked[token] and is_held(row[1], row[2]) then
      for place = at + 1, at + count do
        new[place].place = place
        enqueued[#enqueued + 1] = new[place]
      end
    end
    at = at + count
  end
  if row[3] == 'k' then acked[row[2] .. ':' .. row[1]] = true end
end
local some = false
if #enqueued > 0 then
  local judged, place, holder = judge(enqueued)
  if not judged then return {tostring(enqueued[place].place), holder} end
  some = put_in(enqueued, judged) > 0
end
local answers = {}
for place, row in ipairs(given) do
  local held = is_held(row[1], row[2])
  answers[place] = held and '1' or '0'
  if held and row[3] == 'k' then
    ack(row[1], row[5])
  elseif held then
    local it = read(row[1])
    if row[3] == 'a' then
      abandon(it, tonumber(row[4]), row[5], row[6] == '1')
    else
      unlock(it)
      conclude(it, 'dead', row[5])
    end
  end
end
remove_collected()
-- A lock that ended frees a place, which whoever is held back by a limit waits for.
local wakes = stirred or some or call('EXISTS', P .. 'starved') == 1
if wakes then wake() end
return (wakes and '1' or '0') .. table.concat(answers)
