-- Reasons, as bide/providers/reasons.py has them.

local LOCK_EXPIRED = 'its lock expired: the worker died or stalled while handling it'
local LONGEST_ERROR = 2000

-- At most so many characters of UTF-8, the last of which says that there were more.
local function clipped(text)
  if #text <= LONGEST_ERROR then return text end
  local characters, cut = 0, nil
  for at = 1, #text do
    local byte = string.byte(text, at)
    if byte < 128 or byte > 191 then
      characters = characters + 1
      if characters == LONGEST_ERROR then cut = at end
      if characters > LONGEST_ERROR then return string.sub(text, 1, cut - 1) .. '…' end
    end
  end
  return text
end

local function because(reason, detail)
  return clipped(detail and detail ~= '' and reason .. ': ' .. detail or reason)
end

local function gave_up(attempts, detail)
  return because('gave up after ' .. attempts .. (attempts == 1 and ' attempt' or ' attempts'), detail)
end

local function killed_workers(deaths)
  return 'the worker died ' .. deaths .. ' times while handling it'
end

local function past_life(it)
  local missed = it.q == 'deliveries' and 'delivered' or 'done'
  return because('not ' .. missed .. ' within ' .. it.wt, it.c)
end
