"""Whether Redis takes what it is given, and has not too much to take."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import structlog

from chappe.errors import Overload
from chappe.queues.redis.durability import faults_of
from chappe.redis.calls import Calls, Failure
from chappe.redis.place import Place

log = structlog.get_logger()

# What may be on its way to Redis: some seconds of it.
UNDER_WAY_BYTES_MAX = 64 * 1024 * 1024
_PROBE_S = 0.1
_PROBE_MAX_S = 2.0


class Health:
    """How calls fare; while they fail, Redis is tried until it is back."""

    def __init__(self, calls: Calls, place: Place, back: Callable[[], None]) -> None:
        # The bytes of all commits that are on their way.
        self.under_way = 0
        self._calls = calls
        self._place = place
        self._back = back
        self._away: str | None = None
        self._here = asyncio.Event()
        self._probe: asyncio.Task[None] | None = None
        # Whether the servers' settings have been found good since they were last away.
        self._trusted = place.aof == "any"
        self._closed = False

    def check(self) -> None:
        """Raise Overload while Redis takes nothing, or has too much to take."""
        if self._away is not None:
            raise Overload(self._away)
        self.check_room(UNDER_WAY_BYTES_MAX)

    def check_room(self, most: int) -> None:
        """Raise Overload when more than that is on its way."""
        if self.under_way > most:
            raise Overload(
                f"{self._place.shown}: {self.under_way} bytes wait to be written already"
            )

    async def faults(self) -> list[str]:
        """What is wrong with the servers' settings; raises Failure."""
        if self._trusted:
            return []
        faults = await faults_of(self._calls)
        self._trusted = not faults
        return faults

    def succeeded(self) -> None:
        """Redis takes what it is given."""
        if self._away is not None:
            log.info("queues.redis.back", redis=self._place.shown)
            self._away = None
            self._here.set()
            self._back()

    def failed(self, failure: Failure) -> None:
        """Redis did not; look when it does again."""
        if not (failure.temporary and failure.everywhere) or self._closed:
            return
        if self._away is None:
            log.warning("queues.redis.away", reason=str(failure))
            self._trusted = self._place.aof == "any"
        self._away = str(failure)
        self._here.clear()
        if self._probe is None:
            self._probe = asyncio.create_task(self._look())

    async def pause(self, seconds: float) -> None:
        """Wait so long, or until Redis is here again."""
        if self._away is None:
            await asyncio.sleep(seconds)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._here.wait()

    async def close(self) -> None:
        """Look no more."""
        self._closed = True
        if self._probe is not None:
            self._probe.cancel()
            await asyncio.wait([self._probe])

    async def _look(self) -> None:
        """Write something of no importance until it succeeds."""
        pause_s = _PROBE_S
        place, key = self._place, f"{self._place.prefix}:probe"
        write = ("SET", key, "1", "PX", "1000")
        wait = ("WAIT", place.wait, place.wait_ms)
        timeout_s = self._calls.timeout_s + place.wait_ms / 1000
        while self._away is not None:
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _PROBE_MAX_S)
            try:
                _, replicas = await self._calls.run(key, write, wait, timeout_s=timeout_s)
            except Failure as failure:
                self._away = str(failure)
            else:
                if replicas >= place.wait:
                    self.succeeded()
        self._probe = None
