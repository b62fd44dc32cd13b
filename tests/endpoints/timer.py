"""A loop's timer that tests move."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any


class ManualTimer:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls: list[Call] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], None], *args: Any) -> Call:
        call = Call(when, partial(callback, *args))
        self.calls.append(call)
        return call

    def call_later(self, delay: float, callback: Callable[[], None], *args: Any) -> Call:
        return self.call_at(self.now + delay, callback, *args)

    def call_soon(self, callback: Callable[[], None]) -> asyncio.Handle:
        """What is to happen at the end of a turn does, while time stands still."""
        return asyncio.get_running_loop().call_soon(callback)

    @property
    def pending(self) -> list[float]:
        return sorted(call.when for call in self.calls if not call.over)

    def move_to(self, now: float) -> None:
        """Make every call that is due until then."""
        while due := [call for call in self.calls if not call.over and call.when <= now]:
            call = min(due, key=lambda each: each.when)
            self.now = max(self.now, call.when)
            call.over = True
            call.callback()
        self.now = now
        self.calls = [call for call in self.calls if not call.over]


class Call:
    def __init__(self, when: float, callback: Callable[[], None]) -> None:
        self.when = when
        self.callback = callback
        self.over = False

    def cancel(self) -> None:
        self.over = True
