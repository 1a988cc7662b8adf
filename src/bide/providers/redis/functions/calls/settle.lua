-- Settle by token. ARGV: 3 rows: id, nonce, kind ("k" ack, "a" abandon, "b" bury), then delay_ms, text (of an ack its
-- result, else the error), and whether the attempt counts, or for an ack how many rows of 4 it enqueues; 4 new items.
-- Answers a character that says whether something may have become eligible, and one for each, "1" or "0" (stale); or the place of a new item with a conflicting key and its holder.

local function is_held(id, nonce)
  local kept, ends = unpack(call('HMGET', P .. 'i:' .. id, 't', 'u'))
  return kept == nonce and tonumber(ends) > NOW
end

-- Acks of what leaves nothing behind, by queue: everything that they touch is touched once.
local lots, is_collected = {}, {}

local function collect(id, ref, queue, fetch)
  local lot = lots[queue]
  if not lot then
    lot = {refs = {}, keys = {}, fetches = {}}
    lots[queue] = lot
  end
  local at = #lot.refs + 1
  lot.refs[at], lot.keys[at] = ref, P .. 'i:' .. id
  local of_fetch = lot.fetches[fetch]
  if not of_fetch then
    of_fetch = {}
    lot.fetches[fetch] = of_fetch
  end
  of_fetch[#of_fetch + 1] = ref
  is_collected[id] = true
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

-- Whether the token held.
local function ack(id, nonce, result)
  if is_collected[id] then return false end
  local kept, ends, seq, queue, fetch, special =
    unpack(call('HMGET', P .. 'i:' .. id, 't', 'u', 's', 'q', 'f', 'sp'))
  if kept ~= nonce or tonumber(ends) <= NOW then return false end
  if not special and queue ~= DELIVERIES then
    collect(id, seq .. ':' .. id, queue, fetch)
    return true
  end
  local it = read(id)
  if not it.k and not it.r and queue ~= DELIVERIES then
    remove(it)
    return true
  end
  unlock(it)
  if it.r and result then change(it, {res = result}) end
  conclude(it, 'done')
  return true
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

-- Whether the token held.
local function give_up_or_back(row)
  if is_collected[row[1]] or not is_held(row[1], row[2]) then return false end
  local it = read(row[1])
  if row[3] == 'a' then
    abandon(it, tonumber(row[4]), row[5], row[6] == '1')
  else
    unlock(it)
    conclude(it, 'dead', row[5])
  end
  return true
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
  local held
  if row[3] == 'k' then held = ack(row[1], row[2], row[5]) else held = give_up_or_back(row) end
  answers[place] = held and '1' or '0'
end
remove_collected()
-- A lock that ended frees a place, which whoever is held back by a limit waits for.
local wakes = stirred or some or call('EXISTS', P .. 'starved') == 1
if wakes then wake() end
return (wakes and '1' or '0') .. table.concat(answers)
