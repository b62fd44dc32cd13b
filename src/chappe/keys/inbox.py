"""An inbox: what a session has said and its handlers have not come to, one after the other."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chappe.keys.serving import Serving
    from chappe.keys.session import KeySession

Run = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


class Inbox:
    """Hands on what a session says in a task of its own, which is there while something waits.

    Whoever fills it stops when it is full, and is told by `room` when to go on.
    """

    __slots__ = ("_full", "_messages", "_messages_max", "_room", "_run", "_serving", "_task", "_to")

    def __init__(self, serving: Serving, run: Run, room: Callable[[], None]) -> None:
        self._serving = serving
        self._run = run
        self._room = room
        self._messages: deque[str | bytes] = deque()
        self._messages_max = serving.options.inbox_messages_max
        self._full = False
        self._to: KeySession | None = None
        self._task: asyncio.Task[None] | None = None

    def begin(self, session: KeySession) -> None:
        """Tell that a session has begun, and then what it said meanwhile."""
        self._to = session
        self._task = self._run(self._begin(session))

    def put(self, message: str | bytes) -> bool:
        """Take a message; whether there is room for more."""
        self._messages.append(message)
        if self._to is not None and self._task is None:
            self._task = self._run(self._work(self._to))
        if len(self._messages) >= self._messages_max:
            self._full = True
        return not self._full

    async def _begin(self, session: KeySession) -> None:
        try:
            await self._serving.connected(session)
        except BaseException:
            self._task = None
            raise
        await self._work(session)

    async def _work(self, session: KeySession) -> None:
        messages = self._messages
        try:
            while messages and not session.closed:
                message = messages.popleft()
                if len(messages) <= self._messages_max // 2:
                    self._make_room()
                await self._serving.take(session, message)
        finally:
            self._task = None
            if session.closed:
                messages.clear()
            self._make_room()

    def _make_room(self) -> None:
        if self._full:
            self._full = False
            self._room()
