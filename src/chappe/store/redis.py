"""A store in Redis: shared by all nodes that name the same server and prefix.

A table is one hash, `PREFIX:TABLE`, so that a change is one transaction also on a Redis that is
spread over several servers. How much of what was acknowledged is there after a crash is Redis's own
setting (`appendfsync`); one that restarts empty, or fails over, steps back in time.

A change that ended in an error may still lie in Redis's socket and happen later than the next one:
who cannot bear that uses `swap`, which looks at what is there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from functools import partial
from itertools import islice

from chappe.store.redis_server import TIMEOUT_S, RedisServer

PAGE_KEYS = 500
# Redis refuses a command of more than a million arguments, and serves nobody else meanwhile.
COMMAND_KEYS = 5_000

_SWAP = """
local now = redis.call('HGET', KEYS[1], ARGV[1])
if ARGV[2] == '0' then
    if now then return 0 end
elseif now ~= ARGV[3] then
    return 0
end
if ARGV[4] == '0' then
    redis.call('HDEL', KEYS[1], ARGV[1])
else
    redis.call('HSET', KEYS[1], ARGV[1], ARGV[5])
end
return 1
"""


class RedisStore:
    """Tables in hashes of a Redis server; connects when it is first used, and again by itself.

    `url` may hold a password, `shown` is what errors say instead.
    """

    def __init__(self, url: str, shown: str, prefix: str, *, timeout_s: float = TIMEOUT_S) -> None:
        self._prefix = prefix
        self._server = RedisServer(url, shown, timeout_s)
        self._redis = self._server.redis
        self._swap = self._redis.register_script(_SWAP)

    async def get(self, table: str, keys: Iterable[str]) -> dict[str, bytes]:
        """Read the values of those keys that are there."""
        wanted = list(keys)
        found: dict[str, bytes] = {}
        name = self._name(table)
        for start in range(0, len(wanted), COMMAND_KEYS):
            part = wanted[start : start + COMMAND_KEYS]
            values = await self._server.again(partial(self._redis.hmget, name, part))
            found.update(
                (key, value) for key, value in zip(part, values, strict=True) if value is not None
            )
        return found

    async def change(
        self, table: str, puts: Mapping[str, bytes], deletes: Iterable[str] = ()
    ) -> None:
        """Write and remove many at once; what is in both is written."""
        removed = list(deletes)
        if puts or removed:
            await self._server.again(lambda: self._change(self._name(table), puts, removed))

    async def _change(self, name: str, puts: Mapping[str, bytes], deletes: list[str]) -> None:
        async with self._redis.pipeline(transaction=True) as pipe:
            for start in range(0, len(deletes), COMMAND_KEYS):
                pipe.hdel(name, *deletes[start : start + COMMAND_KEYS])
            items = iter(puts.items())
            while part := dict(islice(items, COMMAND_KEYS)):
                pipe.hset(name, mapping=part)
            await pipe.execute()

    async def swap(self, table: str, key: str, expected: bytes | None, value: bytes | None) -> bool:
        """Replace a value if it is still what is expected; whether it was."""
        arguments: list[str | bytes] = [key, *_maybe(expected), *_maybe(value)]
        return bool(
            await self._server.once(lambda: self._swap(keys=[self._name(table)], args=arguments))
        )

    async def scan(self, table: str, prefix: str = "") -> AsyncIterator[list[tuple[str, bytes]]]:
        """Read all keys that begin so, a page at a time; Redis looks at every key of the table."""
        name, match = self._name(table), _escaped(prefix) + "*"
        # A table that is resized meanwhile gives some keys twice.
        seen: set[str] = set()
        cursor: int | None = None
        while cursor != 0:
            cursor, found = await self._server.again(
                partial(self._redis.hscan, name, cursor or 0, match, PAGE_KEYS)
            )
            page = [(raw.decode(), value) for raw, value in found.items()]
            page = [item for item in page if item[0] not in seen]
            seen.update(key for key, _ in page)
            if page:
                yield page

    async def clear(self, table: str, prefix: str = "") -> None:
        """Remove all keys that begin so."""
        name = self._name(table)
        if not prefix:
            await self._server.again(lambda: self._redis.unlink(name))
            return
        async for page in self.scan(table, prefix):
            await self.change(table, {}, [key for key, _ in page])

    async def close(self) -> None:
        """Let go of the connections."""
        await self._server.close()

    def _name(self, table: str) -> str:
        return f"{self._prefix}:{table}"


def _maybe(value: bytes | None) -> tuple[str, bytes]:
    """A value that may be none, as a script gets it."""
    return ("0", b"") if value is None else ("1", value)


def _escaped(prefix: str) -> str:
    """A prefix as a pattern that matches itself."""
    return "".join("\\" + c if c in "*?[]\\^-" else c for c in prefix)
