-- Steer polls by hand. ARGV: 3 "pause", "resume", "now" or "forget"; 4 names as rows. Answers, as rows, those to which
-- it was done.

local acts = {
  pause = function(row, is_there)
    if row.paused then return false end
    if not is_there then begin_poll(row) end
    write_poll(row, {paused = '1'})
    return true
  end,
  resume = function(row)
    if not row.paused then return false end
    write_poll(row, {paused = false})
    return true
  end,
  now = function(row, is_there)
    if is_there then write_poll(row, {due = NOW, nb = false, hold = 0}) end
    return is_there
  end,
  forget = function(row, is_there)
    call('DEL', P .. 'p:' .. row.name)
    call('SREM', P .. 'polls', row.name)
    overtaken(row.eventseq)
    return is_there
  end,
}

local done = {}
for _, given in ipairs(unpacked(ARGV[4], 1)) do
  local row, is_there = poll(given[1])
  if acts[ARGV[3]](row, is_there) then done[#done + 1] = packed({row.name}, 1) end
end
return table.concat(done)
