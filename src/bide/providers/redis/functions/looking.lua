-- Items of a queue by state, as people see them: an expired lock holds nothing.

local function lapsed_of(queue, limit)
  return call('ZRANGEBYSCORE', P .. 'l:' .. queue, '-inf', NOW, 'LIMIT', 0, limit)
end

local function running_of(queue, limit)
  return call('ZRANGEBYSCORE', P .. 'l:' .. queue, '(' .. NOW, '+inf', 'LIMIT', 0, limit)
end

-- Those of some refs that are before one in the order of seq; all where there is none.
local function before(refs, seq)
  local found = {}
  for _, ref in ipairs(refs) do
    if not seq or string.sub(ref, 1, 13) < seq then found[#found + 1] = ref end
  end
  return found
end

-- What a row of an item has, before its id.
local ROW_FIELDS = {'q', 'n', 'p', 'a', 'd', 'e', 'v', 'x', 'y', 'c', 'm', 'i', 'k', 'g', 'b', 'res', 't', 'u', 'z', 's'}
