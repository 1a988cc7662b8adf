-- End subscriptions, and of the deliveries that wait for them as many as so many; or let ended ones live again.
-- ARGV: 3 "end" or "resume"; 4 names as rows; 5 the reason of an end; 6 how many. Answers, as rows, the names that were, and
-- whether there may be more deliveries.

local LANES = {'r:', 'rp:', 'rm:', 'v:'}

local function waiting_for(name, limit)
  local lane, refs, seen = joined(DELIVERIES, name), {}, {}
  for _, lot in ipairs(LANES) do
    for _, ref in ipairs(call('ZRANGE', P .. lot .. lane, 0, limit - 1)) do refs[#refs + 1] = ref end
  end
  for _, ref in ipairs(refs) do seen[ref] = true end
  for _, ref in ipairs(call('ZREVRANGE', P .. 'o:' .. joined(DELIVERIES, name), 0, limit - 1)) do
    if not seen[ref] then refs[#refs + 1] = ref end
  end
  return refs
end

local done, left, more = {}, tonumber(ARGV[6]), false
for _, row in ipairs(unpacked(ARGV[4], 1)) do
  local key = P .. 's:' .. row[1]
  local event, ended, why = unpack(call('HMGET', key, 'event', 'ended', 'why'))
  if event and ARGV[3] == 'resume' and ended then
    call('HDEL', key, 'ended', 'why')
    call('SADD', P .. 'hear:' .. event, row[1])
    done[#done + 1] = packed(row, 1)
  elseif event and ARGV[3] == 'end' and not ended then
    call('HSET', key, 'ended', NOW, 'why', ARGV[5])
    call('SREM', P .. 'hear:' .. event, row[1])
    done[#done + 1] = packed(row, 1)
    ended, why = true, ARGV[5]
  end
  if event and ARGV[3] == 'end' and ended then
    for _, ref in ipairs(waiting_for(row[1], left)) do
      if left == 0 then break end
      local it = read(id_of(ref))
      withdraw(it)
      conclude(it, 'dead', because('the subscription ended', why))
      left = left - 1
    end
    more = more or left == 0
  end
end
return {table.concat(done), more and 1 or 0}
