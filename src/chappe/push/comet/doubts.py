"""Doubts: whether a session is still what the store says.

Another comet may have the client by now, its token may be revoked or its topics changed, and the
word of it got lost; or the store has lost what it knew. Each session is looked at from time to
time, many at once, and the one that another comet has asked about at once.

A session may end while the store is written to on its behalf. Whoever wrote then says once more
that it left, as it was said before what was written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

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
        changed: Callable[[DeviceSession], None],
        left: Callable[[str, str], None],
    ) -> None:
        self._server = server
        self._states = states
        self._clock = clock
        self._counters = counters
        self._end = end
        self._found = found
        self._changed = changed
        self._left = left
        # Those that wait to be looked at, each once.
        self._waiting: set[DeviceSession] = set()
        self._batch: Batch[DeviceSession] = Batch(
            "doubts", self._work, at_once=_AT_ONCE, most=options.sessions_max
        )

    def put(self, session: DeviceSession) -> None:
        """Look at a session."""
        if session not in self._waiting and self._batch.put(session):
            self._waiting.add(session)

    async def idle(self) -> None:
        """Wait until all is looked at."""
        await self._batch.idle()

    def cancel(self) -> None:
        """Look at no more."""
        self._batch.cancel()
        self._waiting.clear()

    async def _work(self, some: list[DeviceSession]) -> None:
        self._waiting.difference_update(some)
        try:
            await self._look(_logged_in(some))
        except StorageError:
            # Nobody is ended because the store is away; there is another look.
            self._counters.store_failures["doubts"] += 1

    async def _look(self, some: list[DeviceSession]) -> None:
        digests = [session.digest for session in some]
        holders = await self._states.user.tokens(digests, self._clock.wall_ms())
        routes = await self._states.route.find([session.client for session in some])
        here: list[DeviceSession] = []
        missing: list[DeviceSession] = []
        for session, holder in zip(some, holders, strict=True):
            server = routes.get(session.client)
            if holder is None:
                self._end(session, REVOKED)
            elif server is None:
                missing.append(session)
            elif server != self._server:
                self._end(session, REPLACED)
            else:
                here.append(session)
        here += await self._claim(_logged_in(missing))
        await self._compare(_logged_in(here))

    async def _claim(self, some: list[DeviceSession]) -> list[DeviceSession]:
        """The store has lost where clients are; those that have not logged in elsewhere since."""
        if not some:
            return []
        taken = await self._states.route.claim({each.client: self._server for each in some})
        here = []
        for session in some:
            if session.client in taken:
                self._end(session, REPLACED)
            elif session.closed:
                self._left(session.client, session.app)
            else:
                self._found(session)
                here.append(session)
        return here

    async def _compare(self, some: list[DeviceSession]) -> None:
        """See whether the store has the topics of clients that are here, and has them here."""
        for app, sessions in _by_app(some).items():
            clients = [session.client for session in sessions]
            known = await self._states.topic.subscribers(app, clients)
            strayed: list[DeviceSession] = []
            for session, subscriber in zip(sessions, known, strict=True):
                if session.closed:
                    continue
                if subscriber.marks.keys() != (session.topics or {}).keys():
                    self._changed(session)
                if subscriber.marks and subscriber.server != self._server:
                    strayed.append(session)
            if strayed:
                await self._bring_topics(app, strayed)

    async def _bring_topics(self, app: str, some: list[DeviceSession]) -> None:
        """Let the topics of clients be here, where these are.

        A login elsewhere writes its route first, then its topics: whoever finds no other route
        after it has written topics has not taken them away from a later login.
        """
        clients = [session.client for session in some]
        await self._states.topic.move_all(app, clients, self._server)
        routes = await self._states.route.find(clients)
        for session in some:
            server = routes.get(session.client, self._server)
            if server != self._server:
                await self._states.topic.move(app, session.client, server)
                self._end(session, REPLACED)
            elif session.closed:
                self._left(session.client, app)
            else:
                self._found(session)


def _logged_in(some: list[DeviceSession]) -> list[DeviceSession]:
    return [session for session in some if session.state in (State.READY, State.LIVE)]


def _by_app(some: Iterable[DeviceSession]) -> dict[str, list[DeviceSession]]:
    apps: dict[str, list[DeviceSession]] = {}
    for session in some:
        apps.setdefault(session.app, []).append(session)
    return apps
