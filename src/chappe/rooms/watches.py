"""Watches: tasks that follow paths of the registry, one each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

from chappe.registry import errand
from chappe.registry.coordination import Coordination, Versioned
from chappe.rooms.bench import Bench

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping


class Watches:
    """Follows values and benches; while the registry is away, nothing comes of them."""

    def __init__(self, coordination: Coordination, changed: Callable[[], None]) -> None:
        self._coordination = coordination
        self._changed = changed
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def value(self, path: str, see: Callable[[Versioned | None], Awaitable[None]]) -> None:
        """Call `see` with a value, and each time it has changed."""
        self._tasks[path] = errand.run(self._follow(path, see), f"watching {path}")

    def bench(self, path: str, bench: Bench) -> None:
        """Keep a bench as the registry has it."""
        self._tasks[path] = errand.run(self._sit_by(path, bench), f"watching {path}")

    @property
    def dead(self) -> list[str]:
        """What is followed no more, by mistake."""
        return errand.dead(self._tasks.values())

    async def end(self, path: str) -> None:
        """Follow a path no more."""
        await errand.end(self._tasks.pop(path, None))

    async def stop(self) -> None:
        """Follow nothing any more."""
        for path in list(self._tasks):
            await self.end(path)

    async def _follow(self, path: str, see: Callable[[Versioned | None], Awaitable[None]]) -> None:
        async with _closing(self._coordination.watch(path)) as values:
            async for value in values:
                await see(value)

    async def _sit_by(self, path: str, bench: Bench) -> None:
        loop = asyncio.get_running_loop()
        rows: AsyncGenerator[Mapping[int, bytes], None]
        async with _closing(self._coordination.watch_seats(path)) as rows:
            async for row in rows:
                bench.see(row, loop.time())
                self._changed()


def _closing(views: AsyncIterator[Any]) -> aclosing[AsyncGenerator[Any, None]]:
    """A watch that is ended lets go of the bell at once, not when it is collected."""
    return aclosing(cast("AsyncGenerator[Any, None]", views))
