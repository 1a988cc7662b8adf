-- Polls: the hash "p:<name>", in which what there is not is left out. The set "polls" has their names.

local function poll(name)
  local row, is_there = read_hash(P .. 'p:' .. name)
  row.name = name
  return row, is_there
end

local function write_poll(row, fields)
  local flat, gone = {}, {}
  for field, value in pairs(fields) do
    row[field] = value or nil
    if value then
      flat[#flat + 1] = field
      flat[#flat + 1] = value
    else
      gone[#gone + 1] = field
    end
  end
  local key = P .. 'p:' .. row.name
  if #flat > 0 then call('HSET', key, unpack(flat)) end
  if #gone > 0 then call('HDEL', key, unpack(gone)) end
end

-- A row of a poll that had none. Its generation is never one that a poll of its name had before it was forgotten.
local function begin_poll(row)
  call('SADD', P .. 'polls', row.name)
  write_poll(row, {due = NOW, hold = 0, gen = NOW})
end

local function held(hold_ms)
  return hold_ms > 0 and NOW + hold_ms or false, hold_ms
end

-- The row of a claim that still holds.
local function claimed(name, generation)
  local row = poll(name)
  return row.out and tonumber(row.gen) == tonumber(generation) and row or nil
end
