-- Where things are, what time it is, and rows as texts.
--
-- Every function is given KEYS[1], the store's "{prefix}:meta"; every other key begins as it does, and so lies in its
-- hash slot. ARGV[1] is the version of the layout that the caller knows, ARGV[2] the caller itself, for wake-ups.
-- Instants are milliseconds since the Unix epoch by the server's clock; with thirteen digits they are exact in
-- Lua's numbers. Nothing that a user wrote is ever read as JSON or as a number here.

local call, META, P, SENDER, NOW

-- Whether something may have become eligible for those who wait.
local stirred

local function now_ms(ARGV)
  local time = call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- What every call begins with; an error where the store is none of this version.
local function begin(KEYS, ARGV)
  call, META, SENDER, stirred = redis.call, KEYS[1], ARGV[2], false
  P = string.sub(META, 1, -5)
  NOW = now_ms(ARGV)
  local version = call('HGET', META, 'schema')
  if version ~= ARGV[1] then return redis.error_reply('BIDESCHEMA ' .. (version or 'none')) end
end

-- Two or three texts as one that no other ones give.
local function joined(first, second, third)
  local pair = #first .. ':' .. first .. ':' .. second
  return third and #pair .. ':' .. pair .. ':' .. third or pair
end

-- Rows are lengths (four bytes each, all ones for a field that there is not) and then the texts.
local NOTHING = 4294967295

local function packed(row, width)
  local lengths, texts = {}, {}
  for at = 1, width do
    local field = row[at]
    if not field then
      lengths[at] = NOTHING
    else
      if type(field) == 'number' then field = string.format('%.0f', field) end
      lengths[at] = #field
      texts[#texts + 1] = field
    end
  end
  return struct.pack('>' .. string.rep('I4', width), unpack(lengths)) .. table.concat(texts)
end

local function unpacked(blob, width)
  local rows, at, format = {}, 1, '>' .. string.rep('I4', width)
  while at <= #blob do
    local lengths = {struct.unpack(format, blob, at)}
    at = lengths[width + 1]
    local row = {}
    for field = 1, width do
      if lengths[field] ~= NOTHING then
        row[field] = string.sub(blob, at, at + lengths[field] - 1)
        at = at + lengths[field]
      end
    end
    rows[#rows + 1] = row
  end
  return rows
end

local function read_hash(key)
  local flat, hash = call('HGETALL', key), {}
  for at = 1, #flat, 2 do hash[flat[at]] = flat[at + 1] end
  return hash, #flat > 0
end

-- Tell those who wait. Nobody is told while nobody is hungry; whoever looks in vain is hungry again, so no change goes unheard.
local function wake()
  if call('DEL', P .. 'hungry', P .. 'starved') > 0 then
    call('XADD', P .. 'wake', 'MAXLEN', 16, '*', 'by', SENDER)
  end
end
