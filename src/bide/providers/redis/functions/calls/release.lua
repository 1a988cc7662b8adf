-- Give back what a fetch took and still holds, as if it had not been fetched. ARGV: 3 fetch token. Answers how many.

local released = 0
for _, ref in ipairs(call('SMEMBERS', P .. 'f:' .. ARGV[3])) do
  local it = read(id_of(ref))
  if tonumber(it.u) > NOW then
    unlock(it)
    change(it, {a = it.a - 1})
    admit(it)
    released = released + 1
  end
end
if released > 0 then wake() end
return released
