-- Take the polls that are due, those that have been for longest first (bide/core/claim.py).
-- ARGV: 3 rows of name, interval, hold of a call and phase; 4 limit; 5 slack_ms. Answers rows of claims.

local CLAIM_WIDTH = 12

local function is_claimable(row, every, slack)
  local nb, hold, due = tonumber(row.nb), tonumber(row.hold), tonumber(row.due)
  if row.paused or (nb and NOW < nb and nb <= NOW + 2 * hold) then return false end
  if row.out then return true end
  local kept = tonumber(row.every)
  return due <= NOW + slack or ((not kept or kept > every) and due > NOW + every) or due > NOW + 2 * every
end

local function lag_of(row)
  local nb, due = tonumber(row.nb), tonumber(row.due)
  if row.out then return nb and math.max(NOW - nb, 0) or 0 end
  return math.max(NOW - math.max(due, nb or due), 0)
end

local due, slack = {}, tonumber(ARGV[5])
for _, asked in ipairs(unpacked(ARGV[3], 4)) do
  local row, is_there = poll(asked[1])
  if not is_there or is_claimable(row, tonumber(asked[2]), slack) then
    due[#due + 1] = {row = row, is_there = is_there, asked = asked, lag = is_there and lag_of(row) or 0}
  end
end
table.sort(due, function(one, other)
  if one.lag ~= other.lag then return one.lag > other.lag end
  return one.row.name < other.row.name
end)
local claims = {}
for at = 1, math.min(tonumber(ARGV[4]), #due) do
  local row, asked = due[at].row, due[at].asked
  if not due[at].is_there then begin_poll(row) end
  local every, phase = tonumber(asked[2]), tonumber(asked[4])
  local least = NOW + math.floor(every / 2) + 1
  local nb, hold = held(tonumber(asked[3]))
  write_poll(row, {
    due = least + (phase - least) % every, nb = nb, hold = hold, every = every, gen = row.gen + 1, called = NOW, out = '1',
  })
  claims[at] = packed({
    row.name, row.gen, NOW, row.due, due[at].lag, row.fails, row.etag, row.modified, row.decl, row.valid, row.digest,
  }, CLAIM_WIDTH)
end
return table.concat(claims)
