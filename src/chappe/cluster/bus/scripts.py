"""What Redis does for the bus, each in one step; all times are Redis's own (K3)."""

from __future__ import annotations

from chappe.redis.script import Script

_NOW = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
"""
# A command of Lua takes so many arguments.
_EACH = """
local function each(command, key, from, to)
  for at = from, to, 1000 do
    redis.call(command, key, unpack(ARGV, at, math.min(at + 999, to)))
  end
end
"""

# Register, beat, and write the keys anew: what was there before does not count.
# KEYS: brokers, beats, keys of the broker, maybe a set of keys that was laid aside. ARGV: the
# broker, its keys. Gives the brokers.
ENTER = Script(
    _NOW
    + _EACH
    + """
redis.call('SADD', KEYS[1], ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], string.format('%.0f', now))
if KEYS[4] then
  redis.call('RENAME', KEYS[4], KEYS[3])
  redis.call('PERSIST', KEYS[3])
else
  redis.call('DEL', KEYS[3])
  each('SADD', KEYS[3], 2, #ARGV)
end
return redis.call('SMEMBERS', KEYS[1])
"""
)

# Register and beat. KEYS: as before. ARGV: the broker, two intervals in milliseconds.
# Gives whether it was known, how many keys it has, and those who have not beaten for so long. One
# whose beat is in the future, as Redis's clock stepped back, has two intervals from now.
BEAT = Script(
    _NOW
    + """
local known = redis.call('SADD', KEYS[1], ARGV[1]) == 0
known = known and redis.call('HEXISTS', KEYS[2], ARGV[1]) == 1
redis.call('HSET', KEYS[2], ARGV[1], string.format('%.0f', now))
local late = {}
for _, name in ipairs(redis.call('SMEMBERS', KEYS[1])) do
  local beat = tonumber(redis.call('HGET', KEYS[2], name))
  if not beat or now - beat > tonumber(ARGV[2]) then
    late[#late + 1] = name
  elseif beat > now then
    redis.call('HSET', KEYS[2], name, string.format('%.0f', now))
  end
end
return {known and 1 or 0, redis.call('SCARD', KEYS[3]), late}
"""
)

# Remove a broker if it is dead still (K4). KEYS: as before, of the dead one. ARGV: the dead one,
# two intervals.
BURY = Script(
    _NOW
    + """
local beat = tonumber(redis.call('HGET', KEYS[2], ARGV[1]))
if beat and now - beat <= tonumber(ARGV[2]) then return 0 end
redis.call('SREM', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('DEL', KEYS[3])
return 1
"""
)

# KEYS: as before. ARGV: the broker.
LEAVE = Script("""
redis.call('SREM', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('DEL', KEYS[3])
return 1
""")

# KEYS: brokers, keys of the broker. ARGV: the broker, how many keys are new, those, those that are
# gone. Gives whether the broker was registered, and all brokers; of one that is not, nothing is
# written, as nobody would ever remove it.
CHANGE = Script(
    _EACH
    + """
local registered = redis.call('SISMEMBER', KEYS[1], ARGV[1])
if registered == 1 then
  local added = tonumber(ARGV[2])
  each('SADD', KEYS[2], 3, 2 + added)
  each('SREM', KEYS[2], 3 + added, #ARGV)
end
return {registered, redis.call('SMEMBERS', KEYS[1])}
"""
)

# Who has some keys. KEYS: brokers, keys of each broker that the caller knows. ARGV: the caller, how
# many brokers it knows, their names, the keys. Gives 0 and all brokers if there are others besides,
# else 1, whether the caller is registered, and for each key the brokers that have it.
FIND = Script("""
local count = tonumber(ARGV[2])
local sets, here = {}, {}
for at = 1, count do sets[ARGV[2 + at]] = KEYS[1 + at] end
local all = redis.call('SMEMBERS', KEYS[1])
local registered = 0
for _, name in ipairs(all) do
  if name == ARGV[1] then
    registered = 1
  elseif sets[name] then
    here[#here + 1] = name
  else
    return {0, all}
  end
end
local found = {}
for at = 3 + count, #ARGV do
  local owners = {}
  for _, name in ipairs(here) do
    if redis.call('SISMEMBER', sets[name], ARGV[at]) == 1 then owners[#owners + 1] = name end
  end
  found[#found + 1] = owners
end
return {1, registered, found}
""")
