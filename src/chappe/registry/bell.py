"""A bell that wakes whoever waits for a change of a path."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class Bell:
    """Wakes those that listen to a path, or all of them when nobody knows what has changed."""

    def __init__(self) -> None:
        # In the order they came, so that a simulation is the same each time.
        self._listeners: dict[str, dict[asyncio.Event, None]] = {}

    @contextmanager
    def listening(self, path: str) -> Iterator[asyncio.Event]:
        """Lend an event that is set at each ring, until the block is left.

        Clear it, then look, then wait: so nothing falls between the look and the wait.
        """
        event = asyncio.Event()
        self._listeners.setdefault(path, {})[event] = None
        try:
            yield event
        finally:
            listeners = self._listeners[path]
            listeners.pop(event, None)
            if not listeners:
                del self._listeners[path]

    def ring(self, path: str) -> None:
        """Wake those who listen to this path."""
        for event in self._listeners.get(path, ()):
            event.set()

    def ring_all(self) -> None:
        """Wake everybody: a connection came back, and what happened meanwhile is not known."""
        for listeners in self._listeners.values():
            for event in listeners:
                event.set()


async def rung(event: asyncio.Event, timeout_s: float) -> None:
    """Wait for a ring, or until it is time to look anyway."""
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        pass
