-- One item. ARGV: 3 id. Answers its row, empty where there is none, and the instant.

local fields = call('HMGET', P .. 'i:' .. ARGV[3], unpack(ROW_FIELDS))
fields[21] = ARGV[3]
return {fields[1] and packed(fields, 21) or '', string.format('%.0f', NOW)}
