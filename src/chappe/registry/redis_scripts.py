"""What a Redis ledger does, each in one atomic step, as scripts that run inside Redis.

All keys of a registry carry the same {tag}, so a Redis cluster keeps them on one shard.

    {p}:sessions        zset: session -> when it is over, in ms of Redis's own clock
    {p}:number          the last number given to a session, a version, an epoch or a seat
    {p}:members         hash: name -> "session incarnation json"
    {p}:value:/path     hash: d = the value, v = its version
    {p}:lease:/path     hash: s = session, t = tag, h = what the holder says of itself
    {p}:row:/path       hash: number -> "session tag value", "session tag:turn value" once told
    {p}:sequence:/path  a counter
    {p}:undone:S:TAG    what was taken back before it was taken; for a while
    {p}:rings           channel: what has changed, as a bell's path; * for anything

Numbers never fall below Redis's clock in microseconds: a Redis that forgot everything does not give
an old one again, as long as its clock did not step back. They stay below 2^53, where Lua counts
exactly, until 2255. What belongs to a session that is over is swept when its row is read.

A request whose sender gave up may lie in a buffer while Redis hangs, and be carried out after the
one that was to take it back: hence `undone`, which lasts longer than that can take.

KEYS[1] and KEYS[2] are always the sessions and the number, KEYS[3] what the script is about,
KEYS[4] the mark of its tag;
ARGV[1] is the channel, ARGV[2] a session where there is one.
"""

from __future__ import annotations

_PRELUDE = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function left(session)
  local over = redis.call('ZSCORE', KEYS[1], session)
  return over and tonumber(over) - now or 0
end
local function alive(session) return left(session) > 0 end
local function number()
  local last = tonumber(redis.call('GET', KEYS[2]) or '0')
  local given = string.format('%.0f', math.max(last + 1, time[1] * 1000000 + time[2]))
  redis.call('SET', KEYS[2], given)
  return given
end
local function mark_undone() redis.call('SET', KEYS[4], '1', 'EX', 600) end
local function undone() return redis.call('EXISTS', KEYS[4]) == 1 end
local function ring(path) redis.call('PUBLISH', ARGV[1], path) end
"""

# ARGV: channel, lease in ms. The clock's fraction was cut off: hence one more.
BEGIN = (
    _PRELUDE
    + """
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
local session = number()
redis.call('ZADD', KEYS[1], now + ARGV[2] + 1, session)
return session
"""
)

# ARGV: channel, session, lease in ms.
RENEW = (
    _PRELUDE
    + """
if not alive(ARGV[2]) then return 0 end
redis.call('ZADD', KEYS[1], now + ARGV[3] + 1, ARGV[2])
return 1
"""
)

END = (
    _PRELUDE
    + """
redis.call('ZREM', KEYS[1], ARGV[2])
ring('*')
return 1
"""
)

# ARGV: channel, session, bell, name, incarnation, json. Incarnations may be too large for Lua's
# numbers: they are compared as text of digits.
ENTER = (
    _PRELUDE
    + """
local function older(a, b)
  if #a ~= #b then return #a < #b end
  return a < b
end
if not alive(ARGV[2]) then return {'over'} end
local found = redis.call('HGET', KEYS[3], ARGV[4])
if found then
  local session, incarnation, json = string.match(found, '^(%S+) (%S+) (.*)$')
  if alive(session) and json ~= ARGV[6] and not older(incarnation, ARGV[5]) then
    return {'taken', json}
  end
end
redis.call('HSET', KEYS[3], ARGV[4], ARGV[2] .. ' ' .. ARGV[5] .. ' ' .. ARGV[6])
ring(ARGV[3])
return {'done'}
"""
)

# ARGV: channel, session, bell, name.
WITHDRAW = (
    _PRELUDE
    + """
local found = redis.call('HGET', KEYS[3], ARGV[4])
if found and string.match(found, '^(%S+)') == ARGV[2] then
  redis.call('HDEL', KEYS[3], ARGV[4])
  ring(ARGV[3])
end
return 1
"""
)

# Gives the ms until the first of them may run out (-1: never), then each field and what it holds.
_ENTRIES = """
local found = redis.call('HGETALL', KEYS[3])
local first = -1
local entries = {}
for i = 1, #found, 2 do
  local session, _, value = string.match(found[i + 1], '^(%S+) (%S+) (.*)$')
  local ms = left(session)
  if ms > 0 then
    if first < 0 or ms < first then first = ms end
    entries[#entries + 1] = found[i]
    entries[#entries + 1] = value
  else
    redis.call('HDEL', KEYS[3], found[i])
  end
end
return {first, entries}
"""
ENTRIES = _PRELUDE + _ENTRIES

# ARGV: channel, bell, version expected (empty: none), value.
PUT = (
    _PRELUDE
    + """
local found = redis.call('HMGET', KEYS[3], 'd', 'v')
if (found[2] or '') ~= ARGV[3] then return {0, found[1], found[2]} end
local version = number()
redis.call('HSET', KEYS[3], 'd', ARGV[4], 'v', version)
ring(ARGV[2])
return {1, version}
"""
)

# ARGV: channel, bell, version expected.
DELETE = (
    _PRELUDE
    + """
local found = redis.call('HMGET', KEYS[3], 'd', 'v')
if found[2] ~= ARGV[3] then return {0, found[1], found[2]} end
redis.call('DEL', KEYS[3])
ring(ARGV[2])
return {1}
"""
)

# ARGV: channel, session, tag, holder.
TAKE = (
    _PRELUDE
    + """
if undone() or not alive(ARGV[2]) then return {'over'} end
local found = redis.call('HMGET', KEYS[3], 's', 'h')
if found[1] and found[1] ~= ARGV[2] and alive(found[1]) then return {'held', found[2]} end
redis.call('HSET', KEYS[3], 's', ARGV[2], 't', ARGV[3], 'h', ARGV[4])
return {'done', number()}
"""
)

# ARGV: channel, session, tag.
FREE = (
    _PRELUDE
    + """
local found = redis.call('HMGET', KEYS[3], 's', 't')
if found[1] == ARGV[2] and found[2] == ARGV[3] then
  redis.call('DEL', KEYS[3])
else
  mark_undone()
end
return 1
"""
)

# ARGV: channel, session, bell, tag, value.
SIT = (
    _PRELUDE
    + """
if undone() or not alive(ARGV[2]) then return {'over'} end
local seat = number()
redis.call('HSET', KEYS[3], seat, ARGV[2] .. ' ' .. ARGV[4] .. ' ' .. ARGV[5])
ring(ARGV[3])
return {'done', seat}
"""
)

# ARGV: channel, session, bell, tag, turn, value.
TELL = (
    _PRELUDE
    + """
if not alive(ARGV[2]) then return 'over' end
local found = redis.call('HGETALL', KEYS[3])
for i = 1, #found, 2 do
  local session, tag, turn = string.match(found[i + 1], '^(%S+) ([^%s:]+):?(%d*) ')
  if session == ARGV[2] and tag == ARGV[4] then
    if tonumber(ARGV[5]) > (tonumber(turn) or 0) then
      local entry = session .. ' ' .. tag .. ':' .. ARGV[5] .. ' ' .. ARGV[6]
      redis.call('HSET', KEYS[3], found[i], entry)
      ring(ARGV[3])
    end
    return 'done'
  end
end
return 'over'
"""
)

# ARGV: channel, session, bell, tag.
RISE = (
    _PRELUDE
    + """
local found = redis.call('HGETALL', KEYS[3])
for i = 1, #found, 2 do
  local session, tag = string.match(found[i + 1], '^(%S+) ([^%s:]+)')
  if session == ARGV[2] and tag == ARGV[4] then
    redis.call('HDEL', KEYS[3], found[i])
    ring(ARGV[3])
    return 1
  end
end
mark_undone()
return 0
"""
)
