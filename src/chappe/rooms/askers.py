"""Askers: who asks a role for signs of life, and so may send it messages."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable

# Of more than that, who asked longest ago is forgotten.
ASKERS_MAX = 4096


class Askers:
    """Those of one role, who asked last at the end; each asks four times a beat."""

    def __init__(self) -> None:
        self._asked: dict[Hashable, float] = {}
        # Who was not told yet, once there is something to tell.
        self._untold: set[Hashable] = set()
        self._news = asyncio.Event()

    def note(self, who: Hashable, now: float) -> None:
        """Somebody asks, and is answered in the same turn."""
        asked = self._asked
        asked.pop(who, None)
        asked[who] = now
        if len(asked) > ASKERS_MAX:
            del asked[next(iter(asked))]
        if who in self._untold:
            self._untold.discard(who)
            self._news.set()

    async def told(self, silence_s: float, now: float) -> None:
        """Wait until all who take the role for alive have asked again; no longer than they do."""
        self._untold = {who for who, at in self._asked.items() if at > now - silence_s}
        try:
            async with asyncio.timeout(silence_s):
                while self._untold:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            self._untold.clear()
