"""The desk of users: notes to users of the hub, live where they have a session, else stored.

A user that said hello once is a client of the push app with the name of the hub's app; its device
has a name that no device may have. So what is true of devices is true of it: a note waits until
it is acknowledged, comes at the next login, is taken back when it was shown elsewhere.

    hello   -> came  -> client claimed, route moved, what waits is handed over
    deliver -> hand  -> a message to all sessions of the user, wherever they are
    shown   -> settled, counted; `once`, taken back from the user's devices and other sessions
    another hello -> joined -> that session is handed what the others have and did not show
    the last session ends -> left -> route left

What the store could not be asked, or told, is kept and tried again at the next beat.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import structlog

from chappe.clock import Clock
from chappe.errors import StorageError
from chappe.events.pushrecorder import PushRecorder, Told
from chappe.ids import PrefixedIds
from chappe.push.comet.batch import Batch
from chappe.push.comet.once import Onces
from chappe.push.comet.tallies import Tallies
from chappe.push.comets import Comets, Handed
from chappe.push.note import Note
from chappe.push.options import CometOptions
from chappe.push.state.states import States
from chappe.push.users.arrivals import Arrivals
from chappe.push.users.backlog import Backlog
from chappe.push.users.hands import Hands
from chappe.push.users.joining import Joining
from chappe.push.users.receipts import Receipts
from chappe.push.users.seats import Seat, Seats
from chappe.wire.pushlink import Close, Subscribed, Withdraw
from chappe.wire.pushlink import Why as CloseWhy

log = structlog.get_logger()

# Users that left and whose routes are still to be; a node's worth of them.
LEFT_MAX = 100_000


class Hall(Protocol):
    """The hub's users, as whoever hands them notes sees them."""

    def hand(self, app: str, user: str, note: Note, *, only: str | None = None) -> bool:
        """Give a note to a user's sessions, here and elsewhere, or only to the one of an id, which
        is here; False if none takes it."""
        ...

    def retract(self, app: str, user: str, note_id: str, *, besides: str | None = None) -> None:
        """Tell a user's sessions, besides the one of an id, to take a note back."""
        ...

    def online(self, app: str, user: str) -> bool:
        """Whether a user has any session, here or elsewhere."""
        ...


class UserDesk:
    """What a comet is to devices, to the users of one hub."""

    def __init__(
        self,
        *,
        server: int,
        states: States,
        comets: Comets,
        hall: Hall,
        ids: PrefixedIds,
        clock: Clock,
        recorder: PushRecorder,
        redelivery_s: float = CometOptions().redelivery_s,
    ) -> None:
        self._server = server
        self._route = states.route
        self._hall = hall
        self._clock = clock
        self._recorder = recorder
        tallies = Tallies(states.meta)
        self.seats = Seats()
        self._hands = Hands(redelivery_s, clock.monotonic())
        onces = Onces(states, comets, tallies, recorder)
        self._receipts = Receipts(states.message, onces, tallies, recorder, hall.retract)
        self._backlog = Backlog(
            states.message, self.seats, self._hands, self._receipts, tallies, recorder, self._hand
        )
        self._joining = Joining(
            states.message,
            self.seats,
            self._hands,
            self._receipts,
            recorder,
            lambda seat, note, session: hall.hand(seat.app, seat.user, note, only=session),
            self._backlog.look,
        )
        self._arrivals = Arrivals(
            server, states, ids, clock, online=hall.online, sit=self._sit, seated=self._seated
        )
        self._leaving: Batch[str] = Batch("leaving", self._leave, at_once=1000, most=LEFT_MAX)

    def came(self, app: str, user: str) -> None:
        """A user has its first session here."""
        self._arrivals.add(app, user)

    def joined(self, app: str, user: str, session: str) -> None:
        """A user has another session here, of that id."""
        seat = self.seats.of_user(app, user)
        if seat is None:
            self._arrivals.add(app, user)
        else:
            self._joining.add(seat.client, session)

    def left(self, app: str, user: str) -> None:
        """A user has no session here any more; elsewhere it may have one, and be handed notes from
        here."""
        self._arrivals.drop(app, user)
        seat = self.seats.of_user(app, user)
        if seat is not None and not self._hall.online(app, user):
            self._rise(seat)

    def shown(self, app: str, user: str, ids: Sequence[str], session: str) -> None:
        """A user has seen these notes, in a session of that id."""
        seat = self.seats.of_user(app, user)
        if seat is not None:
            self._receipts.add(seat, ids, self._clock.wall_us(), session)
            if self._hands.drop(seat.client, ids):
                self._backlog.look(seat.client)

    def beat(self) -> None:
        """A second has passed: what was not shown for long comes again, what failed is tried
        again."""
        for client in self._hands.advance(self._clock.monotonic()):
            self._backlog.look(client)
        self._arrivals.kick()
        self._joining.kick()
        self._backlog.kick()
        self._receipts.kick()

    # What links call.

    def deliver(self, note: Note, clients: list[str], came_from: str = "") -> Handed:
        """Hand a note to those of these clients that are users with sessions."""
        handed: list[str] = []
        absent: list[str] = []
        for client in clients:
            seat = self.seats.of(client)
            if seat is not None and seat.key == note.app and self._hand(seat, note):
                handed.append(client)
            else:
                absent.append(client)
        if handed:
            told = Told(note.app, note.id, note.job)
            self._recorder.handed(told, handed, "live", self._clock.wall_us(), came_from)
        return Handed(len(handed), tuple(absent))

    def broadcast(self, note: Note, came_from: str = "") -> Handed:
        """Users of the hub have topics of their own."""
        return Handed(0)

    def close(self, op: Close) -> None:
        """A client that was removed has no seat; sessions of the hub end by tokens of the hub."""
        seat = self.seats.of(op.client)
        if seat is not None and op.why is CloseWhy.REMOVED:
            self._rise(seat)

    def withdraw(self, op: Withdraw) -> None:
        """Let those take a note back that are named; who else has it is not known here."""
        for client in op.clients:
            seat = self.seats.of(client)
            if seat is not None and seat.key == op.app:
                self._hall.retract(seat.app, seat.user, op.note)
                if self._hands.drop(client, (op.note,)):
                    self._backlog.look(client)

    def subscribed(self, op: Subscribed) -> None:
        """No user has topics of push."""

    def look(self) -> None:
        """Hand users here what waits for them and did not come."""
        for client in self.seats.clients():
            self._backlog.look(client)

    async def idle(self) -> None:
        """Wait until all is done that can be, or the store has failed."""
        await self._arrivals.idle()
        await self._joining.idle()
        await self._backlog.idle()
        await self._receipts.idle()
        await self._leaving.idle()

    async def drain(self) -> None:
        """Rise all; what was said before is settled."""
        await self._arrivals.idle()
        for client in self.seats.clients():
            seat = self.seats.of(client)
            assert seat is not None
            self._rise(seat)
        self._receipts.kick()
        await self.idle()

    def _hand(self, seat: Seat, note: Note) -> bool:
        if self._hall.hand(seat.app, seat.user, note):
            self._hands.take(seat.client, note)
            return True
        if self._hall.online(seat.app, seat.user):
            self._hands.refuse(seat.client)
        else:
            self._rise(seat)
        return False

    def _sit(self, seat: Seat) -> None:
        self.seats.take(seat)
        self._backlog.earlier.add(seat.client, self._hands.open(seat.client))

    def _seated(self, seat: Seat) -> None:
        if self.seats.of(seat.client) is None:
            # It left while its route was written: that is to be left after it was.
            self._leaving.put(seat.client)
        elif not self._hall.online(seat.app, seat.user):
            self._rise(seat)
        else:
            self._backlog.look(seat.client)

    def _rise(self, seat: Seat) -> None:
        self.seats.leave(seat)
        self._backlog.earlier.add(seat.client, self._hands.close(seat.client))
        self._leaving.put(seat.client)

    async def _leave(self, clients: list[str]) -> None:
        gone = [client for client in clients if self.seats.of(client) is None]
        try:
            await self._route.leave(dict.fromkeys(gone, self._server))
        except StorageError as error:
            # Whoever sends a note there finds nobody, and it waits.
            log.warning("push.users.leave", reason=str(error))
