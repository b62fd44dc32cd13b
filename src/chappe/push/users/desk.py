"""The desk of users: notes to users of the hub, live where they have a session, else stored.

A user that said hello once is a client of the push app with the name of the hub's app; its device
has a name that no device may have. So what is true of devices is true of it: a note waits until
it is acknowledged, comes at the next login, is taken back when it was shown elsewhere.

    hello   -> came  -> client claimed, route moved, what waits is handed over
    deliver -> hand  -> a message to all sessions of the user, wherever they are
    shown   -> settled, counted, taken back from the user's devices
    the last session ends -> left -> route left
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import structlog

from chappe.clock import Clock
from chappe.errors import StorageError
from chappe.events.pushrecorder import Ack, PushRecorder, Told, Why
from chappe.ids import PrefixedIds
from chappe.push.comet.batch import Batch
from chappe.push.comet.earlier import Earlier
from chappe.push.comet.once import Onces
from chappe.push.comet.parcel import Brief, Parcel
from chappe.push.comet.tallies import Tallies
from chappe.push.comets import Comets, Handed
from chappe.push.names import USER_DEVICE
from chappe.push.note import Note
from chappe.push.state.states import States
from chappe.push.users.seats import Seat, Seats
from chappe.wire.pushlink import Close, Subscribed, Withdraw
from chappe.wire.pushlink import Why as CloseWhy

log = structlog.get_logger()

# Users that came and were not looked up; a storm of reconnecting is a node's worth of them.
CAME_MAX = 100_000
# Looked up in one go, and handed what waits.
AT_ONCE = 64
# Acknowledgements that wait for the store; beyond that notes come again.
SHOWN_MAX = 100_000
# How long it is believed that an app of the hub has, or has not, an app of push.
APP_S = 5.0
APPS_MAX = 10_000


class Hall(Protocol):
    """The hub's users, as whoever hands them notes sees them."""

    def hand(self, app: str, user: str, note: Note) -> bool:
        """Give a note to a user's sessions, here and elsewhere; False if none takes it."""
        ...

    def retract(self, app: str, user: str, note_id: str) -> None:
        """Tell a user's sessions to take a note back."""
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
    ) -> None:
        self._server = server
        self._states = states
        self._hall = hall
        self._ids = ids
        self._clock = clock
        self._recorder = recorder
        self._tallies = Tallies(states.meta)
        self._onces = Onces(states, comets)
        self._earlier = Earlier()
        self.seats = Seats()
        # By the hub's app: the key of its app of push, if it has one, and until when that is known.
        self._keys: dict[str, tuple[str | None, float]] = {}
        self._coming: Batch[tuple[str, str]] = Batch(
            "users", self._take_seats, at_once=AT_ONCE, most=CAME_MAX
        )
        self._shown: Batch[tuple[Seat, str, int]] = Batch(
            "shown", self._settle, at_once=AT_ONCE, most=SHOWN_MAX
        )
        self._leaving: Batch[str] = Batch("leaving", self._leave, at_once=1000, most=CAME_MAX)
        self._looking: Batch[str] = Batch("looking", self._look, at_once=AT_ONCE, most=CAME_MAX)

    def came(self, app: str, user: str) -> None:
        """A user has its first session here."""
        self._coming.put((app, user))

    def left(self, app: str, user: str) -> None:
        """A user has no session here any more; elsewhere it may have one, and be handed notes from
        here."""
        seat = self.seats.of_user(app, user)
        if seat is not None and not self._hall.online(app, user):
            self._rise(seat)

    def shown(self, app: str, user: str, ids: Sequence[str]) -> None:
        """A user has seen these notes."""
        seat, came_us = self.seats.of_user(app, user), self._clock.wall_us()
        if seat is not None:
            for note_id in ids:
                self._shown.put((seat, note_id, came_us))

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
            for client in handed:
                self._earlier.add(client, (note.id,))
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

    def subscribed(self, op: Subscribed) -> None:
        """No user has topics of push."""

    def look(self) -> None:
        """Hand users here what waits for them and did not come."""
        for client in self.seats.clients():
            self._looking.put(client)

    async def drain(self) -> None:
        """Rise all; what was said before is settled."""
        await self._coming.idle()
        for client in self.seats.clients():
            self._leaving.put(client)
        await self._leaving.idle()
        await self._shown.idle()

    def _hand(self, seat: Seat, note: Note) -> bool:
        if self._hall.hand(seat.app, seat.user, note):
            return True
        if not self._hall.online(seat.app, seat.user):
            self._rise(seat)
        return False

    def _rise(self, seat: Seat) -> None:
        self.seats.leave(seat)
        self._leaving.put(seat.client)

    async def _leave(self, clients: list[str]) -> None:
        gone = [client for client in clients if self.seats.of(client) is None]
        try:
            await self._states.route.leave(dict.fromkeys(gone, self._server))
        except StorageError as error:
            # Whoever sends a note there finds nobody, and it waits.
            log.warning("push.users.leave", reason=str(error))

    async def _take_seats(self, users: list[tuple[str, str]]) -> None:
        """Make clients of users that came, and hand them what waits."""
        try:
            seats = [seat for app, user in users if (seat := await self._maybe_seat(app, user))]
            if not seats:
                return
            for seat in seats:
                self.seats.take(seat)
            # Before what waits is read: what is sent from then on comes here.
            await self._states.route.move({seat.client: self._server for seat in seats})
            await self._hand_waiting(seats)
            await self._tallies.tell()
        except StorageError as error:
            log.warning("push.users.came", reason=str(error))

    async def _look(self, clients: list[str]) -> None:
        seats = [seat for client in dict.fromkeys(clients) if (seat := self.seats.of(client))]
        try:
            await self._hand_waiting(seats, again=False)
            await self._tallies.tell()
        except StorageError as error:
            log.warning("push.users.look", reason=str(error))

    async def _maybe_seat(self, app: str, user: str) -> Seat | None:
        key = await self._maybe_key(app)
        if key is None or not self._hall.online(app, user):
            return None
        device = f"{USER_DEVICE}{user}"
        client = await self._states.user.claim_client(key, device, self._ids.next("c"))
        if client.user != user and not await self._states.user.bind(key, user, client.id):
            log.warning("push.users.crowded", app=app, reason="this user has too many clients")
            return None
        return Seat(app, user, key, client.id)

    async def _maybe_key(self, app: str) -> str | None:
        known = self._keys.get(app)
        now = self._clock.monotonic()
        if known is not None and known[1] > now:
            return known[0]
        found = await self._states.meta.app_named(app)
        key = found.key if found is not None and found.enabled else None
        if len(self._keys) >= APPS_MAX:
            self._keys.clear()
        self._keys[app] = (key, now + APP_S)
        return key

    async def _hand_waiting(self, seats: list[Seat], *, again: bool = True) -> None:
        """Hand over what waits; what was handed over before only if it is to come again."""
        waiting = await self._states.message.waiting([seat.client for seat in seats])
        ids = list(dict.fromkeys(note_id for each in waiting.values() for note_id in each))
        bodies = await self._states.message.bodies(ids)
        for seat in seats:
            for note_id in waiting.get(seat.client, ()):
                note = bodies.get(note_id)
                if not again and self._earlier.had(seat.client, note_id):
                    continue
                if note is not None and self._hand(seat, note):
                    self._tell_handed(note, seat.client)
            self._earlier.add(seat.client, waiting.get(seat.client, ()))

    def _tell_handed(self, note: Note, client: str) -> None:
        """Tell of a note that waited; what was handed live is counted by whoever sent it."""
        why: Why = "again" if self._earlier.had(client, note.id) else "login"
        self._recorder.handed(Told(note.app, note.id, note.job), [client], why)
        if why == "login":
            self._tallies.add(note.job, "sent")

    async def _settle(self, shown: list[tuple[Seat, str, int]]) -> None:
        settled: dict[str, list[str]] = {}
        for seat, note_id, _ in shown:
            settled.setdefault(seat.client, []).append(note_id)
        try:
            bodies = await self._states.message.bodies([note_id for _, note_id, _ in shown])
            waited = await self._states.message.settle(settled)
            acks = []
            for seat, note_id, came_us in shown:
                if note_id not in waited.get(seat.client, ()):
                    continue
                brief = _brief(seat, note_id, bodies.get(note_id))
                acks.append(Ack(seat.client, brief.told, "live", came_us))
                self._tallies.add(brief.told.job, "arrived")
                if brief.once_of is not None:
                    self._onces.add(brief, seat.client)
            self._recorder.acked(acks)
            await self._onces.take_back()
            await self._tallies.tell()
        except StorageError as error:
            # They come again at the next login.
            log.warning("push.users.shown", reason=str(error))


def _brief(seat: Seat, note_id: str, note: Note | None) -> Brief:
    """What is to be known of a note; of one that is gone, that it was."""
    if note is not None and note.app == seat.key:
        return Parcel(note).brief
    return Brief(Told(seat.key, note_id, ""), None, 0, None)
