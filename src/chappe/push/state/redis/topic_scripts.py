"""The scripts of the topic state. ARGV[1] is what all its names begin with.

Which sets a subscriber is in depends on what the scripts find, so they make up names by themselves:
all have the tag of the state. How members are spread over sets is told in `spreading.py`.
"""

from __future__ import annotations

from chappe.push.state.redis.spreading import FILL, HASH_DIGITS
from chappe.push.state.topic import BEYOND_MAX
from chappe.store.redis_server import Script

_NAMES = f"""
local base, FILL, DIGITS, BEYOND = ARGV[1], {FILL}, {HASH_DIGITS}, {BEYOND_MAX}
"""
_TOPICS = (
    _NAMES
    + """
local function names_key(number) return base .. ':name:' .. math.floor(number / 100) end
local function name_of(app, topic) return #app .. ':' .. app .. ':' .. topic end
local function topic_key(name) return base .. ':topic:' .. name end
local function number_of(app, topic)
    return tonumber(redis.call('HGET', topic_key(name_of(app, topic)), 'n') or '0')
end
-- The number and the last position of a topic, which is made if it is not there.
local function claim(app, topic)
    local name = name_of(app, topic)
    local found = redis.call('HMGET', topic_key(name), 'n', 'last')
    if found[1] then return tonumber(found[1]), tonumber(found[2]) end
    local number = redis.call('INCR', base .. ':number')
    redis.call('HSET', topic_key(name), 'n', number, 'last', 0)
    redis.call('HSET', names_key(number), number, name)
    redis.call('ZADD', base .. ':list:' .. app, 0, topic)
    return number, 0
end
"""
)
_MEMBERS = """
local function power(n)
    local size = 1
    while size * 2 <= n do size = size * 2 end
    return size
end
local function place(member, n)
    local hash, size = tonumber(string.sub(redis.sha1hex(member), 1, DIGITS), 16), power(n)
    local at = hash % (size * 2)
    if at >= n then at = hash % size end
    return at
end
local function set_key(number, server, at)
    return base .. ':on:' .. number .. ':' .. server .. ':' .. at
end
local function join(name, number, server, member)
    local key = topic_key(name)
    local count = redis.call('HINCRBY', key, 's' .. server, 1)
    local n = tonumber(redis.call('HGET', key, 'b' .. server) or '1')
    if count > n * FILL then
        local from, to = set_key(number, server, n - power(n)), set_key(number, server, n)
        for _, other in ipairs(redis.call('SMEMBERS', from)) do
            if place(other, n + 1) == n then
                redis.call('SREM', from, other)
                redis.call('SADD', to, other)
            end
        end
        n = n + 1
        redis.call('HSET', key, 'b' .. server, n)
    end
    redis.call('SADD', set_key(number, server, place(member, n)), member)
end
local function leave(name, number, server, member)
    local key = topic_key(name)
    local n = tonumber(redis.call('HGET', key, 'b' .. server) or '1')
    if redis.call('SREM', set_key(number, server, place(member, n)), member) == 0 then return end
    if redis.call('HINCRBY', key, 's' .. server, -1) == 0 then
        redis.call('HDEL', key, 's' .. server, 'b' .. server)
    end
end
-- Forget a topic that nobody subscribes to and that has no notes; whether it was.
local function forget(name, number)
    if redis.call('EXISTS', base .. ':log:' .. number) == 1 then return 0 end
    for _, field in ipairs(redis.call('HKEYS', topic_key(name))) do
        if string.sub(field, 1, 1) == 's' then return 0 end
    end
    local size, rest = string.match(name, '^(%d+):(.*)$')
    local app, topic = string.sub(rest, 1, size), string.sub(rest, size + 2)
    redis.call('DEL', topic_key(name))
    redis.call('HDEL', names_key(number), number)
    redis.call('ZREM', base .. ':list:' .. app, topic)
    return 1
end
"""
# What is stored of a client: its server + 1, and of each topic number, position, those beyond; cut
# into pieces that a small hash takes, in fields of their own.
_CLIENTS = """
local PIECE = 64
local function field(client, i)
    if i == 0 then return client end
    return client .. struct.pack('>I2', i)
end
local function load(bucket, client)
    local parts = {}
    repeat
        local part = redis.call('HGET', bucket, field(client, #parts)) or ''
        parts[#parts + 1] = part
    until #part < PIECE
    local raw = table.concat(parts)
    if raw == '' then return -1, {}, raw end
    local marks, at = {}, 3
    while at <= #raw do
        local number, beyond = struct.unpack('>I4', raw, at), string.byte(raw, at + 10)
        local stop = at + 11 + 6 * beyond
        marks[#marks + 1] = {number = number, position = string.sub(raw, at + 4, at + 9),
            beyond = string.sub(raw, at + 11, stop - 1)}
        at = stop
    end
    return struct.unpack('>I2', raw) - 1, marks, raw
end
local function save(bucket, client, server, marks)
    local parts = {#marks > 0 and struct.pack('>I2', server + 1) or ''}
    for i, mark in ipairs(marks) do
        parts[i + 1] = struct.pack('>I4', mark.number) .. mark.position
            .. string.char(#mark.beyond / 6) .. mark.beyond
    end
    local raw, i = table.concat(parts), 0
    while i * PIECE < #raw do
        local part = string.sub(raw, i * PIECE + 1, (i + 1) * PIECE)
        redis.call('HSET', bucket, field(client, i), part)
        i = i + 1
    end
    while redis.call('HDEL', bucket, field(client, i)) == 1 do i = i + 1 end
    return raw
end
local function name_by(number) return redis.call('HGET', names_key(number), number) end
local function move(marks, from, to, member)
    if from == to then return end
    for _, mark in ipairs(marks) do
        local name = name_by(mark.number)
        leave(name, mark.number, from, member)
        join(name, mark.number, to, member)
    end
end
"""
_ALL = (_TOPICS, _MEMBERS, _CLIENTS)

# KEYS: the client's bucket. ARGV: base, client, member, server, most, app, topics.
SUBSCRIBE = Script(
    *_ALL,
    """
local client, member, server, most, app = ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[6]
local was, marks = load(KEYS[1], client)
local has, new = {}, {}
for _, mark in ipairs(marks) do has[name_by(mark.number)] = true end
for i = 7, #ARGV do
    local name = name_of(app, ARGV[i])
    if not has[name] then
        has[name] = true
        new[#new + 1] = ARGV[i]
    end
end
if #marks + #new > tonumber(most) then return 0 end
if server < 0 then server = was end
move(marks, was, server, member)
for _, topic in ipairs(new) do
    local number, last = claim(app, topic)
    join(name_of(app, topic), number, server, member)
    marks[#marks + 1] = {number = number, position = struct.pack('>I6', last), beyond = ''}
end
save(KEYS[1], client, server, marks)
return 1
""",
)
# KEYS: the client's bucket. ARGV: base, client, member, app, whether all, topics.
UNSUBSCRIBE = Script(
    *_ALL,
    """
local client, member, app, kept, leaving = ARGV[2], ARGV[3], ARGV[4], {}, {}
local server, marks = load(KEYS[1], client)
for i = 6, #ARGV do leaving[name_of(app, ARGV[i])] = true end
local own = #app .. ':' .. app .. ':'
for _, mark in ipairs(marks) do
    local name = name_by(mark.number)
    if leaving[name] or (ARGV[5] == '1' and string.sub(name, 1, #own) == own) then
        leave(name, mark.number, server, member)
        forget(name, mark.number)
    else
        kept[#kept + 1] = mark
    end
end
save(KEYS[1], client, server, kept)
""",
)
# KEYS: the client's bucket. ARGV: base, client, member, server (-2: stay). What is stored, and the
# names of the topics in it.
MOVE = Script(
    *_ALL,
    """
local client, member, server = ARGV[2], ARGV[3], tonumber(ARGV[4])
local was, marks, raw = load(KEYS[1], client)
if server >= -1 and #marks > 0 and server ~= was then
    move(marks, was, server, member)
    raw = save(KEYS[1], client, server, marks)
end
local out = {raw}
for i, mark in ipairs(marks) do out[i + 1] = name_by(mark.number) end
return out
""",
)
# KEYS: the client's bucket. ARGV: base, client, member, the server that it left.
LEAVE = Script(
    *_ALL,
    """
local client, member = ARGV[2], ARGV[3]
local was, marks = load(KEYS[1], client)
if #marks > 0 and was == tonumber(ARGV[4]) then
    move(marks, was, -1, member)
    save(KEYS[1], client, -1, marks)
end
""",
)
# KEYS: a client's bucket for each mark. ARGV: base, app; client, topic, position, beyond of each.
ADVANCE = Script(
    *_ALL,
    """
local function merged(position, ...)
    local seen, list = {}, {}
    for _, raw in ipairs({...}) do
        for at = 1, #raw, 6 do
            local one = string.sub(raw, at, at + 5)
            -- Bytes that begin with the highest compare as the numbers do.
            if one > position and not seen[one] then
                seen[one] = true
                list[#list + 1] = one
            end
        end
    end
    table.sort(list)
    return table.concat(list, '', 1, math.min(#list, BEYOND))
end
for i = 1, #KEYS do
    local client, topic = ARGV[4 * i - 1], ARGV[4 * i]
    local position, beyond = ARGV[4 * i + 1], ARGV[4 * i + 2]
    local number, server, marks = number_of(ARGV[2], topic), load(KEYS[i], client)
    for _, mark in ipairs(marks) do
        if mark.number == number then
            if position > mark.position then mark.position = position end
            mark.beyond = merged(mark.position, mark.beyond, beyond)
            save(KEYS[i], client, server, marks)
        end
    end
end
""",
)
_LOG = """
local function log_keys(number)
    return base .. ':log:' .. number, base .. ':ids:' .. number, base .. ':same:' .. number
end
-- An entry is the note, when it expires, and the digest of its collapse.
local function drop(number, entry, position)
    local log, ids, same = log_keys(number)
    redis.call('ZREM', log, entry)
    redis.call('HDEL', ids, string.sub(entry, 1, 8))
    local key = string.sub(entry, 15)
    if key ~= '' and redis.call('HGET', same, key) == position then
        redis.call('HDEL', same, key)
    end
end
local function drop_at(number, position)
    for _, entry in ipairs(redis.call('ZRANGEBYSCORE', (log_keys(number)), position, position)) do
        drop(number, entry, position)
    end
end
"""
# KEYS, of these: the topic, so that a Cluster knows where.
# ARGV: base, app, topic, note, now, expires, collapse's digest, most.
APPEND = Script(
    _TOPICS,
    _LOG,
    """
local app, topic, note, now, expires, key = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local number, last = claim(app, topic)
local log, ids, same = log_keys(number)
local has = redis.call('HGET', ids, note)
if has then return has end
local position = string.format('%.0f', math.max(tonumber(now), last + 1))
redis.call('HSET', topic_key(name_of(app, topic)), 'last', position)
if key ~= '' then
    local before = redis.call('HGET', same, key)
    if before then drop_at(number, before) end
    redis.call('HSET', same, key, position)
end
redis.call('ZADD', log, position, note .. struct.pack('>I6', tonumber(expires)) .. key)
redis.call('HSET', ids, note, position)
for _ = 1, redis.call('ZCARD', log) - ARGV[8] do
    local first = redis.call('ZRANGE', log, 0, 0, 'WITHSCORES')
    drop(number, first[1], string.format('%.0f', tonumber(first[2])))
end
local life = math.max(1, expires - now)
for _, one in ipairs({log_keys(number)}) do
    if redis.call('PTTL', one) < life then
        redis.call('PEXPIRE', one, string.format('%.0f', life))
    end
end
return position
""",
)
# ARGV: base, app, topic, note.
TAKE_OUT = Script(
    _TOPICS,
    _LOG,
    """
local number = number_of(ARGV[2], ARGV[3])
local _, ids = log_keys(number)
local position = redis.call('HGET', ids, ARGV[4])
if position then drop_at(number, position) end
""",
)
# ARGV: base, app, topic, after, now, limit. Positions and notes, by turns.
SINCE = Script(
    _TOPICS,
    _LOG,
    """
local now, limit, out = tonumber(ARGV[5]), tonumber(ARGV[6]), {}
local log, first, step = (log_keys(number_of(ARGV[2], ARGV[3]))), 0, 100
while #out < 2 * limit do
    local page = redis.call('ZRANGEBYSCORE', log, '(' .. ARGV[4], '+inf', 'WITHSCORES', 'LIMIT',
        first, step)
    for at = 1, #page, 2 do
        if struct.unpack('>I6', page[at], 9) > now and #out < 2 * limit then
            out[#out + 1] = string.format('%.0f', tonumber(page[at + 1]))
            out[#out + 1] = string.sub(page[at], 1, 8)
        end
    end
    if #page < 2 * step then break end
    first = first + step
end
return out
""",
)
# ARGV: base, which hundred of topics.
SWEEP = Script(
    _TOPICS,
    _MEMBERS,
    """
local gone, all = 0, redis.call('HGETALL', names_key(ARGV[2] * 100))
for at = 1, #all, 2 do gone = gone + forget(all[at + 1], tonumber(all[at])) end
return gone
""",
)
# As they were elsewhere. ARGV: base, app, topic, last position.
RESTORE_TOPIC = Script(
    _TOPICS,
    """
claim(ARGV[2], ARGV[3])
redis.call('HSET', topic_key(name_of(ARGV[2], ARGV[3])), 'last', ARGV[4])
""",
)
# ARGV: base, app, topic, note, position, expires, collapse's digest, how long it lives.
RESTORE_NOTE = Script(
    _TOPICS,
    _LOG,
    """
local number, note, position, key = claim(ARGV[2], ARGV[3]), ARGV[4], ARGV[5], ARGV[7]
local log, ids, same = log_keys(number)
redis.call('ZADD', log, position, note .. struct.pack('>I6', tonumber(ARGV[6])) .. key)
redis.call('HSET', ids, note, position)
if key ~= '' then redis.call('HSET', same, key, position) end
for _, one in ipairs({log, ids, same}) do
    if redis.call('PTTL', one) < tonumber(ARGV[8]) then redis.call('PEXPIRE', one, ARGV[8]) end
end
""",
)
# KEYS: the client's bucket. ARGV: base, client, member, app; topic, position, beyond of each.
RESTORE_CLIENT = Script(
    *_ALL,
    """
local client, member, app = ARGV[2], ARGV[3], ARGV[4]
local server, marks = load(KEYS[1], client)
local has = {}
for _, mark in ipairs(marks) do has[mark.number] = mark end
for i = 5, #ARGV, 3 do
    local number = claim(app, ARGV[i])
    local mark = has[number]
    if not mark then
        join(name_of(app, ARGV[i]), number, server, member)
        mark = {number = number}
        marks[#marks + 1] = mark
    end
    mark.position, mark.beyond = ARGV[i + 1], ARGV[i + 2]
end
save(KEYS[1], client, server, marks)
""",
)
