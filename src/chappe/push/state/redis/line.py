"""What one state says to its server: names, batches, and the number of its buckets."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any, TypeVar

from chappe.errors import StorageError
from chappe.push.state.redis.packing import Buckets
from chappe.push.state.redis.seen import Seen
from chappe.store.redis_server import Command, RedisServer

# Clients that one script looks after: others wait for it, half a millisecond or so.
SCRIPT_CLIENTS = 200
# Buckets that are swept in one go.
SWEEP_BUCKETS = 64
# Names that a scan looks at in one go: a millisecond.
SCAN_NAMES = 1000
_PATTERN = re.compile(rb"([\\*?\[\]])")

T = TypeVar("T")


class Line:
    """A state's names on a server, and the way there.

    All its names have one {tag}: scripts touch several of them, so a Redis Cluster keeps a state
    on one of its servers. The five together need a few, and five is what there are.
    """

    def __init__(self, server: RedisServer, prefix: str, state: str, buckets: int) -> None:
        self.base = f"{{{prefix}:{state}}}"
        self.buckets = Buckets(buckets)
        self.shown = server.shown
        self._server = server
        self._checked = False

    def key(self, *parts: str | int) -> str:
        """A name of the state."""
        return ":".join((self.base, *map(str, parts)))

    async def run(self, *commands: Command) -> list[Any]:
        """Carry out commands in one round trip; raises StorageError."""
        await self._check()
        return await self._server.run(commands)

    async def read(self, *commands: Command, whole: bool = False) -> list[Any]:
        """Carry out commands that change nothing; raises StorageError."""
        await self._check()
        return await self._server.read(commands, whole=whole)

    async def scan(self, kind: str | None = None) -> AsyncIterator[list[bytes]]:
        """Give the names of the state that there are, or those of a kind: without what they all
        begin with, each once. Changes nothing; raises StorageError."""
        start = f"{self.base}:{kind}:" if kind else f"{self.base}:"
        pattern = _PATTERN.sub(rb"\\\1", start.encode()) + b"*"
        seen, cursor = Seen(), None
        try:
            while cursor != 0:
                call = ("SCAN", cursor or 0, "MATCH", pattern, "COUNT", SCAN_NAMES)
                ((cursor, names),) = await self._server.read([call])
                if fresh := seen.new(names):
                    yield [name[len(start.encode()) :] for name in fresh]
        finally:
            seen.close()

    async def sweep(self, call: Callable[[int], Command]) -> list[Any]:
        """Carry out a command for each of the next few buckets: whoever sweeps, goes on."""
        (end,) = await self.run(
            ("INCRBY", self.key("sweep"), min(SWEEP_BUCKETS, self.buckets.count))
        )
        first = end - min(SWEEP_BUCKETS, self.buckets.count)
        at = [bucket % self.buckets.count for bucket in range(first, end)]
        return await self.run(*map(call, at))

    async def _check(self) -> None:
        """See that what is there was put into as many buckets as we look into."""
        if self._checked:
            return
        key, count = self.key("buckets"), self.buckets.count
        _, found = await self._server.run([("SET", key, count, "NX"), ("GET", key)])
        if int(found) != count:
            raise StorageError(
                f"{self._server.shown}: {self.base} has {int(found)} buckets, not {count}"
            )
        self._checked = True


def chunks(items: Sequence[T], size: int = SCRIPT_CLIENTS) -> Iterator[Sequence[T]]:
    """Some at a time."""
    return (items[at : at + size] for at in range(0, len(items), size))
