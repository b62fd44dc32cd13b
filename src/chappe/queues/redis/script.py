"""What Redis does for a queue, each in one step that happens whole or not at all.

Who opens a queue raises its epoch; from then on what others say of it is refused. Each commit has a
number, one higher than the one before: one that is sent again because its answer was lost is not
carried out twice, and a Redis that came back without what it had acknowledged is found out.

An epoch never falls below Redis's clock in microseconds, so that a Redis that forgot everything
does not give an old one again. It stays below 2^53, where Lua counts exactly, until 2255.
"""

from __future__ import annotations

from chappe.redis.script import Script

# KEYS: meta. ARGV: the epoch that was found, how long a queue that nobody makes is remembered.
OPEN = Script("""
local epoch = redis.call('HGET', KEYS[1], 'epoch') or ''
if epoch ~= ARGV[1] then return false end
local time = redis.call('TIME')
local given = math.max((tonumber(epoch) or 0) + 1, time[1] * 1000000 + time[2])
given = string.format('%.0f', given)
redis.call('HSET', KEYS[1], 'epoch', given, 'commit', '0')
if redis.call('HEXISTS', KEYS[1], 'options') == 0 then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return given
""")

# KEYS: meta, and all that is written. ARGV: the epoch, the commit's number, and as msgpack the
# streams that grow, each with the last id in it, and the commands.
COMMIT = Script("""
local meta = redis.call('HMGET', KEYS[1], 'epoch', 'commit')
if meta[1] ~= ARGV[1] then return {'fenced', meta[1] or ''} end
local last, this = tonumber(meta[2]), tonumber(ARGV[2])
if last >= this then return {'done'} end
if last + 1 < this then return {'behind', meta[2]} end
for _, head in ipairs(cmsgpack.unpack(ARGV[3])) do
  local found = '0-0'
  if redis.call('EXISTS', head[1]) == 1 then
    local info = redis.call('XINFO', 'STREAM', head[1])
    for at = 1, #info, 2 do
      if info[at] == 'last-generated-id' then found = info[at + 1] end
    end
  end
  if found ~= head[2] then return {'changed', head[1]} end
end
redis.call('HSET', KEYS[1], 'commit', ARGV[2])
for _, command in ipairs(cmsgpack.unpack(ARGV[4])) do
  redis.call(unpack(command))
end
return {'done'}
""")

# KEYS: a stream. ARGV: the first id, how many, and bytes after which it is enough. Gives the last
# id of the stream if there is nothing more in it, and the records.
READ = Script("""
local found, size, from, left = {''}, 0, ARGV[1], tonumber(ARGV[2])
while left > 0 do
  local asked = math.min(left, 50)
  local page = redis.call('XRANGE', KEYS[1], from, '+', 'COUNT', asked)
  for _, entry in ipairs(page) do
    local record = entry[2][2]
    size = size + #record
    if #found > 1 and size > tonumber(ARGV[3]) then return found end
    found[#found + 1] = record
    from = '(' .. entry[1]
  end
  left = left - asked
  if #page < asked then
    found[1] = '0-0'
    if redis.call('EXISTS', KEYS[1]) == 1 then
      local info = redis.call('XINFO', 'STREAM', KEYS[1])
      for at = 1, #info, 2 do
        if info[at] == 'last-generated-id' then found[1] = info[at + 1] end
      end
    end
    break
  end
end
return found
""")

# KEYS: a stream. ARGV: the id to begin after, how many. Gives ids and what else is kept beside the
# record: nothing that grows with a message.
LIST = Script("""
local found = {}
for at, entry in ipairs(redis.call('XRANGE', KEYS[1], ARGV[1], '+', 'COUNT', ARGV[2])) do
  local fields = entry[2]
  found[at] = {entry[1], fields[4] or '', fields[6] or ''}
end
return found
""")
