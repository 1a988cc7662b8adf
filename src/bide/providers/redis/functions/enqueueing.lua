-- New items: first it is judged what would become of all of them, and nothing is changed; then they are put in.

local NEW_WIDTH = 14  -- id queue name payload priority delay max_attempts within within_text order_key at key limit_key keep

local function has_key_still(id)
  local payload, ended = unpack(call('HMGET', P .. 'i:' .. id, 'p', 'y'))
  return payload and (not ended or NOW < ended + DAY_MS), payload
end

-- For each row its id, or that of the item that it is already, and whether it is new. Or nil, the place of a row
-- whose key has another payload, and the id of the item that has it.
local function judge(rows)
  local answers, ids, keys = {}, {}, {}
  for at, row in ipairs(rows) do
    local id, key = row[1], row[12] and joined(row[2], row[3], row[12])
    if ids[id] or call('EXISTS', P .. 'i:' .. id) == 1 then
      answers[at] = {id, false}
    else
      local holder = key and keys[key]
      if key and not holder then
        local other = call('GET', P .. 'u:' .. key)
        if other then
          local holds, payload = has_key_still(other)
          if holds then holder = {other, payload} end
        end
      end
      if holder then
        if holder[2] ~= row[4] then return nil, at, holder[1] end
        answers[at] = {holder[1], false}
      else
        ids[id] = true
        if key then keys[key] = {id, row[4]} end
        answers[at] = {id, true}
      end
    end
  end
  return answers
end

-- Who had the key, and ended long ago, has it no more.
local function take_over(key, id)
  local record = P .. 'u:' .. key
  local former = call('GET', record)
  local it = former and read(former)
  if it and it.k then
    if it.z then unshelve(it) end
    drop(it, 'k')
    if it.z then shelve(it) end
  end
  call('SET', record, id)
end

-- Whether fetches find it where they find most, and nothing is to be done when it ends but to remove it.
local function is_plain(row)
  return not (row[5] or row[6] or row[8] or row[10] or row[11] or row[12] or row[13] or row[14])
end

local function item_of(row, seq)
  local delay, at = tonumber(row[6] or 0), tonumber(row[11] or 0)
  local visible = math.max(NOW + delay, at)
  local fields = {s = seq, q = row[2], n = row[3], p = row[4], e = NOW, i = row[5], m = row[7], o = row[10],
                  k = row[12], g = row[13], r = row[14]}
  if row[10] or row[12] or row[13] or row[14] then fields.sp = 1 end
  if visible ~= NOW then fields.v = visible end
  if at > NOW + delay then fields.h = '-' elseif delay > 0 then fields.h = delay end
  if row[8] then
    fields.w, fields.wt, fields.x = row[8], row[9], NOW + row[8]
  end
  return fields
end

-- Put in one that is nothing special; into its sets it goes together with others of its kind.
local function put_in_plain(row, seq, lots)
  local id, queue, name, key = row[1], row[2], row[3], P .. 'i:' .. row[1]
  if row[7] then
    call('HSET', key, 's', seq, 'q', queue, 'n', name, 'p', row[4], 'e', NOW, 'm', row[7])
  else
    call('HSET', key, 's', seq, 'q', queue, 'n', name, 'p', row[4], 'e', NOW)
  end
  local lot = lots.last
  if not lot or lot.queue ~= queue or lot.name ~= name then
    local lane = joined(queue, name)
    lot = lots.by_lane[lane]
    if not lot then
      lot = {queue = queue, name = name, lane = lane, waits = {}, ready = {}}
      lots.by_lane[lane] = lot
    end
    lots.last = lot
  end
  local waits, ready, ref = lot.waits, lot.ready, seq .. ':' .. id
  local at = #waits
  waits[at + 1], waits[at + 2] = seq, ref
  ready[at + 1], ready[at + 2] = NOW, ref
end

-- Put in the rows that are new. What is nothing special goes into its sets together with others of its kind.
local function put_in(rows, answers)
  local news = {}
  for at, row in ipairs(rows) do
    if answers[at][2] then news[#news + 1] = row end
  end
  if #news == 0 then return 0 end
  local seq = call('HINCRBY', META, 'items', #news) - #news
  local lots = {by_lane = {}}
  for at, row in ipairs(news) do
    if is_plain(row) then
      put_in_plain(row, string.format('%.0f', seq + at), lots)
    else
      local it = {id = row[1]}
      change(it, item_of(row, seq + at))
      it.ref = it.s .. ':' .. it.id
      if it.k then take_over(joined(it.q, it.n, it.k), it.id) end
      admit(it)
      call('SADD', P .. 'queues', it.q)
    end
  end
  for lane, lot in pairs(lots.by_lane) do
    for first = 1, #lot.waits, 2000 do
      local last = math.min(first + 1999, #lot.waits)
      call('ZADD', P .. 'w:' .. lot.queue, unpack(lot.waits, first, last))
      call('ZADD', P .. 'r:' .. lane, unpack(lot.ready, first, last))
    end
    call('SADD', P .. 'n:' .. lot.queue, lot.name)
    call('SADD', P .. 'queues', lot.queue)
  end
  return #news
end

-- What became of each, as a text for the caller.
local function told(answers)
  local texts = {}
  for at, answer in ipairs(answers) do texts[at] = packed({answer[1], answer[2] and '1'}, 2) end
  return table.concat(texts)
end
