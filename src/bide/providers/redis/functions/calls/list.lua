-- Items of a queue, newest first. ARGV: 3 queue; 4 states as rows; 5 seq that all must be before, or empty; 6 how many
-- are looked at; 7 a name as a row of one.
-- Answers rows of the items of that name, and the last seq that was looked at, empty where there are no more.

local MOST_RUNNING = 10000

local queue, seq, limit = ARGV[3], ARGV[5] ~= '' and ARGV[5] or nil, tonumber(ARGV[6])
local name = unpacked(ARGV[7], 1)[1][1]
local by_seq = {done = 'done:', dead = 'dead:', ready = 'w:'}
local refs = {}
local function add(found) for _, ref in ipairs(found) do refs[#refs + 1] = ref end end
for _, row in ipairs(unpacked(ARGV[4], 1)) do
  local state = row[1]
  if by_seq[state] then
    local from = seq and '(' .. seq or '+inf'
    add(call('ZREVRANGEBYSCORE', P .. by_seq[state] .. queue, from, '-inf', 'LIMIT', 0, limit))
  end
  if state == 'ready' then add(before(lapsed_of(queue, MOST_RUNNING), seq)) end
  if state == 'running' then add(before(running_of(queue, MOST_RUNNING), seq)) end
end
table.sort(refs, function(one, other) return one > other end)
local rows = {}
for at = 1, math.min(limit, #refs) do
  local id = id_of(refs[at])
  local fields = call('HMGET', P .. 'i:' .. id, unpack(ROW_FIELDS))
  if not name or fields[2] == name then
    fields[21] = id
    rows[#rows + 1] = packed(fields, 21)
  end
end
return {table.concat(rows), #refs >= limit and string.sub(refs[limit], 1, 13) or '', string.format('%.0f', NOW)}
