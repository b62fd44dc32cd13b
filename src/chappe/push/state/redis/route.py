"""Routes in Redis.

    {p:route}:at:BUCKET   hash: client, packed -> server * 65536 + the server's life then
    {p:route}:lives       hash: server -> its life, a number
    {p:route}:counts      hash: server -> how many are on it

To clear a server is to begin another life of it: routes of an earlier one lead nowhere, and are
swept away. A route is 8 bytes and 5, and 3 for Redis.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from chappe.push.state.redis.line import Line, chunks
from chappe.push.state.redis.packing import maybe_pack, pack
from chappe.store.redis_server import Command, Script

_LIVES = """
local known = {}
local function life(server)
    if not known[server] then
        known[server] = tonumber(redis.call('HGET', KEYS[2], server) or '0')
    end
    return known[server]
end
local function where(bucket, client)
    local route = tonumber(redis.call('HGET', bucket, client) or '-1')
    local server = math.floor(route / 65536)
    if route >= 0 and life(server) == route % 65536 then return server end
    return -1
end
"""
_MOVE = Script(
    _LIVES,
    """
local before = {}
for i = 3, #KEYS do
    local client, server = ARGV[2 * i - 5], tonumber(ARGV[2 * i - 4])
    local was = where(KEYS[i], client)
    if was ~= server then
        if was >= 0 then redis.call('HINCRBY', KEYS[1], was, -1) end
        redis.call('HINCRBY', KEYS[1], server, 1)
        redis.call('HSET', KEYS[i], client, string.format('%.0f', server * 65536 + life(server)))
    else
        was = -1
    end
    before[i - 2] = was
end
return before
""",
)
_CLAIM = Script(
    _LIVES,
    """
local before = {}
for i = 3, #KEYS do
    local client, server = ARGV[2 * i - 5], tonumber(ARGV[2 * i - 4])
    local was = where(KEYS[i], client)
    if was < 0 then
        redis.call('HINCRBY', KEYS[1], server, 1)
        redis.call('HSET', KEYS[i], client, string.format('%.0f', server * 65536 + life(server)))
    elseif was == server then
        was = -1
    end
    before[i - 2] = was
end
return before
""",
)
_FIND = Script(
    _LIVES,
    """
local found = {}
for i = 3, #KEYS do found[i - 2] = where(KEYS[i], ARGV[i - 2]) end
return found
""",
)
_LEAVE = Script(
    _LIVES,
    """
for i = 3, #KEYS do
    local client, server = ARGV[2 * i - 5], tonumber(ARGV[2 * i - 4])
    if where(KEYS[i], client) == server then
        redis.call('HDEL', KEYS[i], client)
        redis.call('HINCRBY', KEYS[1], server, -1)
    end
end
""",
)
_CLEAR = Script(
    """
local count = tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or '0')
local life = tonumber(redis.call('HGET', KEYS[2], ARGV[1]) or '0')
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], (life + 1) % 65536)
return count
"""
)
_SWEEP = Script(
    _LIVES,
    """
local gone = 0
for _, client in ipairs(redis.call('HKEYS', KEYS[3])) do
    if where(KEYS[3], client) < 0 then gone = gone + redis.call('HDEL', KEYS[3], client) end
end
return gone
""",
)


class RedisRoutes:
    """Who is where, in small hashes."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._shared = (line.key("counts"), line.key("lives"))

    async def move(self, routes: Mapping[str, int]) -> dict[str, int]:
        """Clients logged in on these servers; where those were that were elsewhere before."""
        return await self._changed(_MOVE, routes)

    async def claim(self, routes: Mapping[str, int]) -> dict[str, int]:
        """Clients are on these servers if they are nowhere; where those are that are elsewhere."""
        return await self._changed(_CLAIM, routes)

    async def find(self, clients: Sequence[str]) -> dict[str, int]:
        """Where those are that are somewhere."""
        packed = [(client, maybe_pack("c", client)) for client in dict.fromkeys(clients)]
        known = [(client, raw) for client, raw in packed if raw is not None]
        calls = [
            _FIND.call(
                [*self._shared, *(self._at(raw) for _, raw in part)], [raw for _, raw in part]
            )
            for part in chunks(known)
        ]
        found = [server for answer in await self._line.read(*calls) for server in answer]
        pairs = zip(known, found, strict=True)
        return {client: server for (client, _), server in pairs if server >= 0}

    async def leave(self, routes: Mapping[str, int]) -> None:
        """Clients left these servers; those that are elsewhere by now stay there."""
        await self._changed(_LEAVE, routes)

    async def clear(self, server: int) -> int:
        """Nobody is on a server any more: it was killed. How many were."""
        (count,) = await self._line.run(_CLEAR.call(self._shared, [server]))
        return int(count)

    async def servers(self) -> Iterable[int]:
        """The servers that anybody may be on."""
        (counts,) = await self._line.read(("HGETALL", self._shared[0]))
        return sorted(int(server) for server, count in counts.items() if int(count) > 0)

    async def sweep(self) -> int:
        """Forget some of the routes to servers that were cleared."""

        def call(at: int) -> Command:
            return _SWEEP.call([*self._shared, self._line.key("at", at)], [])

        return sum(await self._line.sweep(call))

    async def _changed(self, script: Script, routes: Mapping[str, int]) -> dict[str, int]:
        known = [(client, pack("c", client), server) for client, server in routes.items()]
        calls = [
            script.call(
                [*self._shared, *(self._at(raw) for _, raw, _ in part)],
                [word for _, raw, server in part for word in (raw, server)],
            )
            for part in chunks(known)
        ]
        before = [server for answer in await self._line.run(*calls) for server in answer or ()]
        return {
            client: server
            for (client, _, _), server in zip(known, before, strict=False)
            if server >= 0
        }

    def _at(self, packed: bytes) -> str:
        return self._line.key("at", self._line.buckets.of_id(packed))
