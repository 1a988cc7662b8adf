-- Subscriptions and events. A subscription is the hash "s:<name>" (set "subs"; "hear:<event>" those that live), an event
-- the hash "e:<seq>"; "ev" has all events by seq, "en:<name>" those of a name, "eo" by age those that are not the last
-- of their poll.

local EVENT_FIELDS = {'seq', 'id', 'name', 'poll', 'payload', 'digest', 'created', 'occurred', 'prev', 'prevseq'}

-- An instant as an envelope has it.
local function iso(instant)
  local days, ms = math.floor(instant / 86400000), instant % 86400000
  local z = days + 719468
  local era = math.floor(z / 146097)
  local doe = z - era * 146097
  local yoe = math.floor((doe - math.floor(doe / 1460) + math.floor(doe / 36524) - math.floor(doe / 146096)) / 365)
  local doy = doe - (365 * yoe + math.floor(yoe / 4) - math.floor(yoe / 100))
  local mp = math.floor((5 * doy + 2) / 153)
  local day = doy - math.floor((153 * mp + 2) / 5) + 1
  local month = mp < 10 and mp + 3 or mp - 9
  local year = yoe + era * 400 + (month <= 2 and 1 or 0)
  return string.format('%04d-%02d-%02dT%02d:%02d:%02d.%03dZ', year, month, day, math.floor(ms / 3600000),
                       math.floor(ms / 60000) % 60, math.floor(ms / 1000) % 60, ms % 1000)
end

-- The delivery of an event to a subscriber, as a row of a new item (bide/providers/fanout.py).
local function delivery_row(event_id, name, kept, text)
  return {event_id .. '.' .. name, 'deliveries', name, text, nil, nil, kept.most, kept.within, kept.text,
          kept.ordered and name or nil}
end

-- One delivery for each living subscriber, in the order of their names.
local function fan_out(event_id, event, text)
  local rows, names = {}, call('SMEMBERS', P .. 'hear:' .. event)
  table.sort(names)
  for at, name in ipairs(names) do
    rows[at] = delivery_row(event_id, name, read_hash(P .. 's:' .. name), text)
  end
  if #rows > 0 then put_in(rows, (judge(rows))) end
  return #rows
end

local function overtaken(seq)
  local created = seq and call('HGET', P .. 'e:' .. seq, 'created')
  if created then call('ZADD', P .. 'eo', created, seq) end
end
