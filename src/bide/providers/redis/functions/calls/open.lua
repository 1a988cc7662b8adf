-- Bring the store up to the version of the caller, all of it in this one call; nothing is changed where that cannot be.
-- KEYS[1] is its "{prefix}:meta". ARGV: 1 the version that the caller knows; 2 the version of the program.
-- Answers the version that is kept, who wrote it, and the last wake-up that was told.

local call = redis.call
local kind = call('TYPE', KEYS[1]).ok
if kind ~= 'none' and kind ~= 'hash' then return {'foreign', kind, ''} end
local version, written_by = unpack(call('HMGET', KEYS[1], 'schema', 'written_by'))
if kind == 'hash' and not version then return {'foreign', 'hash', ''} end
if not version then
  -- Seqs have thirteen digits from the first to the last, so that as texts they are in order.
  call('HSET', KEYS[1], 'schema', ARGV[1], 'written_by', ARGV[2], 'items', 1000000000000, 'events', 0)
  version, written_by = ARGV[1], ARGV[2]
end
local told = call('XREVRANGE', string.sub(KEYS[1], 1, -5) .. 'wake', '+', '-', 'COUNT', 1)
return {version, written_by or '', told[1] and told[1][1] or '0-0'}
