-- Record what came of calls: each answer together with its event and all deliveries, or not at all.
-- ARGV: 3 rows of
--   1 poll, 2 generation, 3 "n" (not modified) or "a", 4 hold_ms, 5 etag, 6 last_modified, 7 declaration, 8 digest,
--   9 payload, 10 event id, 11 event, 12 occurred_at, 13 and 14 the envelope before its seq and after its instant,
--   15 the digest that was compared in full with this one, and 16 whether that found a change.
-- Answers rows of "s" (stale); "u" and how long ago it last changed; "c", seq and deliveries; or, where digests are of
-- different versions and have to be compared in full, "j", the digest that is kept and its payload.

local function unchanged(row)
  return {'u', row.changed and math.max(NOW - row.changed, 0)}
end

local function version(digest) return string.match(digest, '^[^:]*') end

local function settle_poll(row, answer)
  local nb, hold = held(tonumber(answer[4]))
  write_poll(row, {
    nb = nb, hold = hold, out = false, fails = false, since = false, err = false, answered = NOW,
    etag = answer[5] or false, modified = answer[6] or false,
  })
  if answer[3] == 'a' then write_poll(row, {decl = answer[7], valid = NOW}) end
end

local function record_change(row, answer)
  local seq = string.format('%.0f', call('HINCRBY', META, 'events', 1))
  local previous = row.eventseq and call('HGET', P .. 'e:' .. row.eventseq, 'payload')
  local text = answer[13] .. seq .. ',"timestamp":"' .. iso(NOW) .. '"' .. answer[14] .. (previous or 'null') .. '}'
  local fields = {
    seq = seq, id = answer[10], name = answer[11], poll = row.name, payload = answer[9], digest = answer[8], created = NOW,
    occurred = answer[12], prev = row.event, prevseq = row.eventseq,
  }
  local flat = {}
  for field, value in pairs(fields) do
    flat[#flat + 1] = field
    flat[#flat + 1] = value
  end
  call('HSET', P .. 'e:' .. seq, unpack(flat))
  call('ZADD', P .. 'ev', seq, seq)
  call('ZADD', P .. 'en:' .. answer[11], seq, seq)
  overtaken(row.eventseq)
  write_poll(row, {digest = answer[8], changed = NOW, event = answer[10], eventseq = seq})
  return {'c', seq, fan_out(answer[10], answer[11], text)}
end

local function record(answer)
  local row = claimed(answer[1], answer[2])
  if not row then return {'s'} end
  if answer[3] == 'n' then
    settle_poll(row, answer)
    return unchanged(row)
  end
  local is_change = not row.digest or row.digest ~= answer[8]
  if is_change and row.digest and version(row.digest) ~= version(answer[8]) then
    if answer[15] ~= row.digest then
      return {'j', row.digest, row.eventseq and call('HGET', P .. 'e:' .. row.eventseq, 'payload')}
    end
    is_change = answer[16] == '1'
  end
  settle_poll(row, answer)
  if is_change then return record_change(row, answer) end
  write_poll(row, {digest = answer[8]})
  return unchanged(row)
end

local answers = {}
for at, answer in ipairs(unpacked(ARGV[3], 16)) do
  local recorded = record(answer)
  if recorded[1] == 'c' then stirred = true end
  answers[at] = packed(recorded, 3)
end
if stirred then wake() end
return table.concat(answers)
