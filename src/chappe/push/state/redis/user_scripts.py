"""The scripts of the user state. KEYS[1] is the client's bucket, but where it is said otherwise;
ARGV[1] the client, ARGV[2] what the caller thinks is known of it."""

from __future__ import annotations

from chappe.store.redis_server import Script

# Answered when a client is not what the caller thought.
CHANGED = -1

_COMPARE = """
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return -1 end
"""
_TOKENS = """
local function held(bucket, client)
    local found, all = {}, redis.call('HGETALL', bucket)
    for at = 1, #all, 2 do
        if string.sub(all[at + 1], 1, 8) == client then found[#found + 1] = all[at] end
    end
    return found
end
local function revoke(bucket, client)
    local found = held(bucket, client)
    for _, digest in ipairs(found) do redis.call('HDEL', bucket, digest) end
    return #found
end
"""
_USERS = """
local function without(ids, client)
    local kept = {}
    for at = 1, #ids, 8 do
        local id = string.sub(ids, at, at + 7)
        if id ~= client then kept[#kept + 1] = id end
    end
    return table.concat(kept)
end
local function unbind(bucket, user, client)
    if user == '' then return end
    local left = without(redis.call('HGET', bucket, user) or '', client)
    if left == '' then
        redis.call('HDEL', bucket, user)
    else
        redis.call('HSET', bucket, user, left)
    end
end
"""
# KEYS: the device's bucket, the new client's, apps, counts. ARGV: device, client, record, app's
# digest, app, how many clients it may have (0: any number). '': it has so many.
CLAIM = Script(
    """
local has = redis.call('HGET', KEYS[1], ARGV[1])
if has then return has end
local most = tonumber(ARGV[6])
if most > 0 and tonumber(redis.call('HGET', KEYS[4], ARGV[4]) or 0) >= most then return '' end
if redis.call('HEXISTS', KEYS[2], ARGV[2]) == 1 then
    return redis.error_reply('the id of the new client is in use')
end
redis.call('HSETNX', KEYS[3], ARGV[4], ARGV[5])
if redis.call('HGET', KEYS[3], ARGV[4]) ~= ARGV[5] then
    return redis.error_reply('two apps have the same digest')
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('HSET', KEYS[2], ARGV[2], ARGV[3])
redis.call('HINCRBY', KEYS[4], ARGV[4], 1)
return ARGV[2]
"""
)
# KEYS: client, device, user, apps, counts, bridges, tokens. ARGV: client, record, device, user,
# app.
REMOVE = Script(
    _COMPARE,
    _TOKENS,
    _USERS,
    """
redis.call('HDEL', KEYS[1], ARGV[1])
if redis.call('HGET', KEYS[2], ARGV[3]) == ARGV[1] then redis.call('HDEL', KEYS[2], ARGV[3]) end
unbind(KEYS[3], ARGV[4], ARGV[1])
redis.call('HINCRBY', KEYS[5], ARGV[5], -1)
redis.call('DEL', KEYS[6])
for i = 7, #KEYS do revoke(KEYS[i], ARGV[1]) end
return 0
""",
)
# KEYS: client, token. ARGV: client, record, new record, digest, holder.
PUT_TOKEN = Script(
    _COMPARE,
    """
if ARGV[3] ~= ARGV[2] then redis.call('HSET', KEYS[1], ARGV[1], ARGV[3]) end
redis.call('HSET', KEYS[2], ARGV[4], ARGV[5])
return 0
""",
)
# The same, and of all its tokens only so many stay: the new one, and those that expire last. KEYS:
# client, token, other buckets with tokens of it. ARGV: client, record, digest, holder, how many,
# buckets as they stand in its record. See client.py for where that is.
PUT_TOKEN_OF_MANY = Script(
    _COMPARE,
    _TOKENS,
    """
local new, most, tokens = ARGV[3], tonumber(ARGV[5]), {}
redis.call('HSET', KEYS[2], new, ARGV[4])
for at = 2, #KEYS do
    for _, digest in ipairs(held(KEYS[at], ARGV[1])) do
        local expires = struct.unpack('>I6', redis.call('HGET', KEYS[at], digest), 9)
        tokens[#tokens + 1] = {at, digest, expires}
    end
end
table.sort(tokens, function(one, other)
    if (one[2] == new) ~= (other[2] == new) then return one[2] == new end
    if one[3] ~= other[3] then return one[3] > other[3] end
    return one[2] < other[2]
end)
local holds, count, buckets = {}, 0, ''
for place, token in ipairs(tokens) do
    if place > most then
        redis.call('HDEL', KEYS[token[1]], token[2])
    else
        holds[token[1]] = true
    end
end
for at = 2, #KEYS do
    if holds[at] then count, buckets = count + 1, buckets .. ARGV[at + 4] end
end
local rest = string.sub(ARGV[2], 8 + 3 * string.byte(ARGV[2], 7))
local record = string.sub(ARGV[2], 1, 6) .. string.char(count) .. buckets .. rest
redis.call('HSET', KEYS[1], ARGV[1], record)
return 0
""",
)
# KEYS: token. ARGV: digest.
REVOKE = Script(
    """
local holder = redis.call('HGET', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[1], ARGV[1])
return holder
"""
)
# KEYS: client, tokens. ARGV: client, record, new record.
REVOKE_CLIENT = Script(
    _COMPARE,
    _TOKENS,
    """
local count = 0
for i = 2, #KEYS do count = count + revoke(KEYS[i], ARGV[1]) end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return count
""",
)
# KEYS: client, old user, new user. ARGV: client, record, new record, old user, new user, how many.
BIND = Script(
    _COMPARE,
    _USERS,
    """
local client, new = ARGV[1], ARGV[5]
if new ~= '' then
    local others = without(redis.call('HGET', KEYS[3], new) or '', client)
    if #others >= 8 * ARGV[6] then return -2 end
    if ARGV[4] ~= new then
        unbind(KEYS[2], ARGV[4], client)
        redis.call('HSET', KEYS[3], new, others .. client)
    end
else
    unbind(KEYS[2], ARGV[4], client)
end
redis.call('HSET', KEYS[1], client, ARGV[3])
return 0
""",
)
# KEYS: token. ARGV: the time, as it is stored.
SWEEP = Script(
    """
local gone, all = 0, redis.call('HGETALL', KEYS[1])
for at = 1, #all, 2 do
    local expires = struct.unpack('>I6', all[at + 1], 9)
    if expires <= struct.unpack('>I6', ARGV[1]) then
        gone = gone + redis.call('HDEL', KEYS[1], all[at])
    end
end
return gone
"""
)
# KEYS: client, bridges. ARGV: client, kind, value.
PUT_BRIDGE = Script(
    """
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('HSET', KEYS[2], ARGV[2], ARGV[3])
return 1
"""
)
# KEYS: bridges. ARGV: kind, and the value that it has to be.
REMOVE_BRIDGE = Script(
    """
if ARGV[2] and redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
return redis.call('HDEL', KEYS[1], ARGV[1])
"""
)
# A client as it was elsewhere, without its tokens. KEYS: device, client, user, apps, counts. ARGV:
# device, client, record, app's digest, app, user ('': none).
RESTORE = Script(
    """
local holder = redis.call('HGET', KEYS[1], ARGV[1])
if holder and holder ~= ARGV[2] then
    return redis.error_reply('a device has another client already')
end
redis.call('HSETNX', KEYS[4], ARGV[4], ARGV[5])
if redis.call('HGET', KEYS[4], ARGV[4]) ~= ARGV[5] then
    return redis.error_reply('two apps have the same digest')
end
if redis.call('HSET', KEYS[2], ARGV[2], ARGV[3]) == 1 then
    redis.call('HINCRBY', KEYS[5], ARGV[4], 1)
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
if ARGV[6] == '' then return end
local ids = redis.call('HGET', KEYS[3], ARGV[6]) or ''
for at = 1, #ids, 8 do
    if string.sub(ids, at, at + 7) == ARGV[2] then return end
end
redis.call('HSET', KEYS[3], ARGV[6], ids .. ARGV[2])
"""
)
