"""Looking anew: whatever did not come to this comet waits in the store, for whoever is here.

A note that could not be handed over, as a link was down or too much was under way, waits for the
next login of its client; and the client may stay connected for days. So whenever something may not
have come, and every so often anyway (P7), what waits is looked up for all sessions, some each
second; and since words about a client may not have come either, each of them is doubted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from chappe.push.comet.audience import Audience
from chappe.push.comet.session import DeviceSession, State

# All are looked at within about so many seconds, and at least so many in each: each is a look-up.
_SECONDS = 20
_AT_ONCE_MIN = 200


class Looking:
    """Sessions that are to look up what waits for them; `more` does it when there is room, and
    `doubt` compares them with the store."""

    __slots__ = ("_again", "_at_once", "_audience", "_doubt", "_every", "_left", "_more", "_next")

    def __init__(
        self,
        audience: Audience,
        every_s: int,
        more: Callable[[DeviceSession], None],
        doubt: Callable[[DeviceSession], None],
    ) -> None:
        self._audience = audience
        self._every = every_s
        self._more = more
        self._doubt = doubt
        self._left: deque[DeviceSession] = deque()
        self._at_once = _AT_ONCE_MIN
        self._again = False
        self._next = 0

    def ask(self) -> None:
        """Look at all, from the next second on; if that is under way, once more after it."""
        if self._left:
            self._again = True
            return
        self._left.extend(self._audience.clients.values())
        self._at_once = max(_AT_ONCE_MIN, len(self._left) // _SECONDS)

    def beat(self, now: int) -> None:
        """Look at some; every second."""
        if now >= self._next:
            if self._next:
                self.ask()
            self._next = now + self._every
        for _ in range(min(self._at_once, len(self._left))):
            session = self._left.popleft()
            self._doubt(session)
            if session.state is State.LIVE:
                session.behind = True
                self._more(session)
        if self._again and not self._left:
            self._again = False
            self.ask()
