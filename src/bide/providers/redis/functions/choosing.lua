-- Which of the eligible items a fetch takes: the rule of bide/providers/choosing.py, on candidates that are read as
-- they are needed.
--
-- A lot is one sorted set of candidates; a source is the lots of one queue and name (and limit key, where its queue
-- has a limit), of which no more are candidates than may be taken; a group is the sources of one limit key; a line is
-- the groups of a queue.

local KEYS_AT_ONCE = 256
local KEYS_LOOKED_AT = 4096

local function lot_of(key, step) return {key = key, step = step, read = 0, at = 1, refs = {}} end

local function head_of_lot(lot)
  if lot.at > #lot.refs then
    if lot.is_over then return nil end
    lot.refs = call('ZRANGE', lot.key, lot.read, lot.read + lot.step - 1, 'WITHSCORES')
    lot.read, lot.at = lot.read + lot.step, 1
    lot.is_over = #lot.refs < 2 * lot.step
    if #lot.refs == 0 then return nil end
  end
  return lot.refs[lot.at], tonumber(lot.refs[lot.at + 1])
end

-- The first of a group, or false; remembered until it is passed over.
local function head_of(group)
  if group.head == nil then
    local best_ref, best_rank, best_source, best_lot
    for _, source in ipairs(group.sources) do
      if source.left > 0 then
        for _, lot in ipairs(source.lots) do
          local ref, rank = head_of_lot(lot)
          if ref and (not best_ref or rank < best_rank or (rank == best_rank and ref < best_ref)) then
            best_ref, best_rank, best_source, best_lot = ref, rank, source, lot
          end
        end
      end
    end
    group.head, group.rank, group.source, group.lot = best_ref or false, best_rank, best_source, best_lot
  end
  return group.head
end

local function pass_over(group)
  group.source.left = group.source.left - 1
  group.lot.at = group.lot.at + 2
  group.head = nil
end

local function has_room(line, group)
  if line.limit and line.running >= line.limit then return false end
  return not group.key or not line.per_key or group.running < line.per_key
end

-- Whether it is the turn of one group before that of another.
local function comes_before(line, one, other)
  if one.running ~= other.running then return one.running < other.running end
  local one_text, other_text = one.key or '', other.key or ''
  local one_served = line.after ~= nil and one_text <= line.after
  local other_served = line.after ~= nil and other_text <= line.after
  if one_served ~= other_served then return other_served end
  if one_text ~= other_text then return one_text < other_text end
  return not one.key and other.key ~= nil
end

local function first_group(line)
  local best
  for _, group in ipairs(line.groups) do
    if has_room(line, group) and head_of(group) and (not best or comes_before(line, group, best)) then
      best = group
    end
  end
  return best
end

local function serve(line, group)
  line.running, group.running = line.running + 1, group.running + 1
  if line.is_limited then line.after = group.key or '' end
end

local function group_of(line, by_key, key, running)
  local group = by_key[key or 0]
  if not group then
    group = {key = key, running = running, sources = {}}
    by_key[key or 0] = group
    line.groups[#line.groups + 1] = group
  end
  return group
end

-- The groups of those limit keys of a queue and name that have room, beginning behind the one that was served last.
local function add_keys(line, by_key, name, most)
  local index, counts = P .. 'ks:' .. joined(line.queue, name), P .. 'kr:' .. line.queue
  local start = line.after and '(' .. line.after or '-'
  local found, looked, has_wrapped = 0, 0, not line.after
  while found < KEYS_AT_ONCE and looked < KEYS_LOOKED_AT do
    local stop = (has_wrapped and line.after) and '[' .. line.after or '+'
    local keys = call('ZRANGEBYLEX', index, start, stop, 'LIMIT', 0, KEYS_AT_ONCE)
    if #keys == 0 then
      if has_wrapped then return end
      has_wrapped, start = true, '-'
    else
      local fields = {}
      for at, key in ipairs(keys) do fields[at] = ':' .. key end
      local running = call('HMGET', counts, unpack(fields))
      for at, key in ipairs(keys) do
        local count = tonumber(running[at] or 0)
        if not line.per_key or count < line.per_key then
          local lot = lot_of(P .. 'rk:' .. joined(line.queue, name, key), math.min(most, 8))
          local group = group_of(line, by_key, key, count)
          group.sources[#group.sources + 1] = {name = name, left = most, lots = {lot}}
          found = found + 1
        end
      end
      looked = looked + #keys
      start = '(' .. keys[#keys]
      line.seen = keys[#keys]
    end
  end
end

-- A line as it is asked for: a queue, what may run of it and of each key, and the key that was served last.
local function line_of(row, names)
  local line = {queue = row[1], limit = tonumber(row[2]), per_key = tonumber(row[3]), after = row[4], groups = {},
                running = 0, names = {}}
  line.is_limited = line.limit ~= nil or line.per_key ~= nil
  if #names > 0 then
    local wanted = {}
    for at, name in ipairs(names) do wanted[at] = name[1] end
    for first = 1, #wanted, 1000 do
      local last = math.min(first + 999, #wanted)
      for at, is_there in ipairs(call('SMISMEMBER', P .. 'n:' .. line.queue, unpack(wanted, first, last))) do
        if is_there == 1 then line.names[#line.names + 1] = names[first + at - 1] end
      end
    end
  end
  return line
end

local function add_groups(line)
  local by_key, keyed = {}, 0
  if line.is_limited then
    keyed = tonumber(call('HGET', P .. 'kr:' .. line.queue, 't') or 0)
    line.running = call('ZCARD', P .. 'l:' .. line.queue)
    if line.limit and line.running >= line.limit then return end
  end
  for _, row in ipairs(line.names) do
    local name, most = row[1], tonumber(row[2])
    local lane, step = joined(line.queue, name), math.min(most, 100)
    local lots = {lot_of(P .. 'r:' .. lane, step), lot_of(P .. 'rp:' .. lane, step)}
    if line.is_limited then
      add_keys(line, by_key, name, most)
    else
      lots[3] = lot_of(P .. 'rm:' .. lane, step)
    end
    local group = group_of(line, by_key, nil, line.running - keyed)
    group.sources[#group.sources + 1] = {name = name, left = most, lots = lots}
  end
end

-- The first of a group, read.
local function candidate(group)
  local ref = head_of(group)
  if not group.item or group.item.ref ~= ref then
    group.item = read(id_of(ref))
    group.item.rank = group.rank
  end
  return group.item
end

local function kills(it) return tonumber(it.d or 0) >= 2 end

-- Take the next of a line that may be taken, passing over what may not; at most so many.
local function next_of(line, left, patience)
  while patience.left > 0 do
    local group = first_group(line)
    if not group then return nil end
    local it = candidate(group)
    pass_over(group)
    if not kills(it) and left[it.n] ~= 0 then
      serve(line, group)
      if left[it.n] then left[it.n] = left[it.n] - 1 end
      return it
    end
    patience.left = patience.left - 1
  end
  return nil
end

local function choose(lines, limit, left)
  local waiting = {}
  for _, line in ipairs(lines) do
    if first_group(line) then waiting[#waiting + 1] = line end
  end
  if #waiting == 0 then return {} end
  local group = first_group(waiting[1])
  local first = candidate(group)
  if kills(first) then
    serve(waiting[1], group)
    return {first}
  end
  local taken, patience, before = {}, {left = 1000}, -1
  while #taken < limit and #taken > before do
    before = #taken
    for _, line in ipairs(waiting) do
      if #taken == limit then break end
      taken[#taken + 1] = next_of(line, left, patience)
    end
  end
  table.sort(taken, function(one, other)
    if one.rank ~= other.rank then return one.rank < other.rank end
    return one.ref < other.ref
  end)
  return taken
end
