"""Doubts: whether a session is still what the store says.

Another comet may have the client by now, or its token may be revoked, and the word of it got lost;
or the store has lost what it knew. Each session is looked at from time to time, many at once, and
the one that another comet has asked about at once.
"""

from __future__ import annotations

from collections.abc import Callable

from chappe.clock import Clock
from chappe.errors import StorageError
from chappe.push.comet.batch import Batch
from chappe.push.comet.counters import Counters
from chappe.push.comet.ending import REPLACED, REVOKED, Ending
from chappe.push.comet.session import DeviceSession, State
from chappe.push.options import CometOptions
from chappe.push.state.states import States

_AT_ONCE = 256


class Doubts:
    """Sessions that are to be looked at."""

    def __init__(
        self,
        options: CometOptions,
        server: int,
        states: States,
        clock: Clock,
        counters: Counters,
        end: Callable[[DeviceSession, Ending], None],
        found: Callable[[DeviceSession], None],
    ) -> None:
        self._server = server
        self._states = states
        self._clock = clock
        self._counters = counters
        self._end = end
        self._found = found
        self._batch: Batch[DeviceSession] = Batch(
            "doubts", self._work, at_once=_AT_ONCE, most=options.sessions_max
        )

    def put(self, session: DeviceSession) -> None:
        """Look at a session."""
        self._batch.put(session)

    async def idle(self) -> None:
        """Wait until all is looked at."""
        await self._batch.idle()

    def cancel(self) -> None:
        """Look at no more."""
        self._batch.cancel()

    async def _work(self, some: list[DeviceSession]) -> None:
        try:
            await self._look(_logged_in(some))
        except StorageError:
            # Nobody is ended because the store is away; there is another look.
            self._counters.store_failures["doubts"] += 1

    async def _look(self, some: list[DeviceSession]) -> None:
        digests = [session.digest for session in some]
        holders = await self._states.user.tokens(digests, self._clock.wall_ms())
        routes = await self._states.route.find([session.client for session in some])
        missing: list[DeviceSession] = []
        for session, holder in zip(some, holders, strict=True):
            server = routes.get(session.client)
            if holder is None:
                self._end(session, REVOKED)
            elif server is None:
                missing.append(session)
            elif server != self._server:
                self._end(session, REPLACED)
        await self._write_anew(_logged_in(missing))

    async def _write_anew(self, some: list[DeviceSession]) -> None:
        """The store has lost where clients are."""
        if some:
            await self._states.route.move({session.client: self._server for session in some})
        for session in some:
            if session.topics:
                await self._states.topic.move(session.app, session.client, self._server)
            if not session.closed:
                self._found(session)


def _logged_in(some: list[DeviceSession]) -> list[DeviceSession]:
    return [session for session in some if session.state in (State.READY, State.LIVE)]
