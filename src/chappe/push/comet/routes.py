"""Routes: the store is told who came to this comet and who left, many at once (P3, P6).

Comings and goings of a client are told in their order, as one batch is under way at a time; a going
is not told at all if the client is here again.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from chappe.clock import Clock
from chappe.errors import StorageError
from chappe.push.comet.audience import Audience
from chappe.push.comet.batch import Batch
from chappe.push.comet.counters import Counters
from chappe.push.comet.session import DeviceSession
from chappe.push.comets import Comets
from chappe.push.options import CometOptions
from chappe.push.state.states import States
from chappe.push.state.topic import Mark
from chappe.wire.push import PushError
from chappe.wire.pushlink import Close, Why


class Routes:
    """Sessions that are to be found here, and those that are no more."""

    def __init__(
        self,
        options: CometOptions,
        server: int,
        states: States,
        audience: Audience,
        comets: Comets,
        clock: Clock,
        counters: Counters,
        joined: Callable[[DeviceSession], None],
        refuse: Callable[[DeviceSession, PushError, str], None],
    ) -> None:
        self._at_once = options.login_batch
        self._server = server
        self._states = states
        self._audience = audience
        self._comets = comets
        self._clock = clock
        self._counters = counters
        self._joined = joined
        self._refuse = refuse
        # Clients that left, and the app of each.
        self._left: dict[str, str] = {}
        self._batch: Batch[DeviceSession | None] = Batch(
            "routes", self._work, at_once=self._at_once, most=options.sessions_max
        )

    def __len__(self) -> int:
        return len(self._left)

    def join(self, session: DeviceSession) -> None:
        """Write that a client is here, then let its session go on."""
        if not self._batch.put(session):
            self._refuse(session, PushError.SERVER, "too many devices log in; try again later")

    def leave(self, client: str, app: str) -> None:
        """A client is not here any more. Whether it has topics is for the store to say: one that
        was still logging in has not read them, and somebody else may have subscribed it."""
        self._left[client] = app
        self.kick()

    def kick(self) -> None:
        """Tell what could not be told before."""
        if self._left and not len(self._batch):
            self._batch.put(None)

    async def clear(self) -> int:
        """Nobody is here: this comet has just begun. Raises StorageError."""
        return await self._states.route.clear(self._server)

    async def idle(self) -> None:
        """Wait until all is told, or the store has failed."""
        await self._batch.idle()

    def cancel(self) -> None:
        """Tell no more."""
        self._batch.cancel()

    async def _work(self, items: list[DeviceSession | None]) -> None:
        try:
            while self._left:
                await self._leave(dict(islice(self._left.items(), self._at_once)))
        except StorageError:
            self._counters.store_failures["routes"] += 1
        sessions = [each for each in items if each is not None and not each.closed]
        if not sessions:
            return
        try:
            await self._join(sessions)
        except StorageError:
            self._counters.store_failures["routes"] += 1
            for session in sessions:
                self._refuse(session, PushError.SERVER, "the store is away; try again later")

    async def _leave(self, left: dict[str, str]) -> None:
        # Who is here again, or about to be, stays.
        gone = {c: app for c, app in left.items() if c not in self._audience.clients}
        if gone:
            await self._states.route.leave(dict.fromkeys(gone, self._server))
        for app, clients in _by_app(gone).items():
            await self._states.topic.leave_all(app, clients, self._server)
        for client in left:
            del self._left[client]

    async def _join(self, sessions: list[DeviceSession]) -> None:
        sessions = await self._still_good(sessions)
        before = await self._states.route.move(
            {session.client: self._server for session in sessions}
        )
        marks = await self._move({s.client: s.app for s in sessions}, self._server)
        for session in sessions:
            if session.closed:
                continue
            server = before.get(session.client, self._server)
            if server != self._server:
                close = Close(session.client, Why.REPLACED, session.login)
                self._comets.tell(server, close)
            self._audience.listen(session, marks[session.client])
            self._joined(session)

    async def _move(self, apps: dict[str, str], server: int) -> dict[str, dict[str, Mark]]:
        """Clients, each of an app, are on a server now; the topics of each."""
        marks: dict[str, dict[str, Mark]] = {}
        for app, clients in _by_app(apps).items():
            moved = await self._states.topic.move_all(app, clients, server)
            marks.update(zip(clients, moved, strict=True))
        return marks

    async def _still_good(self, sessions: list[DeviceSession]) -> list[DeviceSession]:
        """Look at tokens once more: whoever revokes one from now on finds its session here."""
        holders = await self._states.user.tokens(
            [session.digest for session in sessions], self._clock.wall_ms()
        )
        good = []
        for session, holder in zip(sessions, holders, strict=True):
            if holder is None and not session.closed:
                self._refuse(session, PushError.TOKEN_EXPIRED, "token: expired or revoked")
            elif not session.closed:
                good.append(session)
        return good


def _by_app(apps: dict[str, str]) -> dict[str, list[str]]:
    """Clients by the app of each."""
    found: dict[str, list[str]] = {}
    for client, app in apps.items():
        found.setdefault(app, []).append(client)
    return found
