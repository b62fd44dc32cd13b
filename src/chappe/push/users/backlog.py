"""The backlog: what waits for users that are here, handed over in turns."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice

import structlog

from chappe.errors import StorageError
from chappe.events.pushrecorder import PushRecorder, Told, Why
from chappe.push.comet.batch import Batch
from chappe.push.comet.bodies import FETCH_MAX
from chappe.push.comet.earlier import Earlier
from chappe.push.comet.tallies import Tallies
from chappe.push.note import Note
from chappe.push.state.message import MessageState
from chappe.push.users.hands import Hands
from chappe.push.users.receipts import Receipts
from chappe.push.users.seats import Seat, Seats

log = structlog.get_logger()

# Users that are looked up in one go.
AT_ONCE = 64
_Wanted = deque[tuple[Seat, str]]


class Backlog:
    """Looks up what waits for users, and hands over what they have room for.

    Whom it could not look up it tries again, when it is told to.
    """

    def __init__(
        self,
        messages: MessageState,
        seats: Seats,
        hands: Hands,
        receipts: Receipts,
        tallies: Tallies,
        recorder: PushRecorder,
        hand: Callable[[Seat, Note], bool],
    ) -> None:
        self._messages = messages
        self._seats = seats
        self._hands = hands
        self._receipts = receipts
        self._tallies = tallies
        self._recorder = recorder
        self._hand = hand
        self.earlier = Earlier()
        # Clients of users that are here, each once: so there are no more of them than of users.
        self._looks: dict[str, None] = {}
        self._batch: Batch[None] = Batch("waiting", self._work, at_once=1, most=1)

    def look(self, client: str) -> None:
        """Hand a user what waits for it and did not come, or is to come again."""
        self._looks[client] = None
        self.kick()

    def kick(self) -> None:
        """Go on, if there is anything to be looked up."""
        if self._looks:
            self._batch.put(None)

    async def idle(self) -> None:
        """Wait until all is handed over that can be, or the store has failed."""
        await self._batch.idle()

    async def _work(self, _: list[None]) -> None:
        while self._looks:
            clients = list(islice(self._looks, AT_ONCE))
            for client in clients:
                # Before: who is to be looked at again meanwhile is.
                del self._looks[client]
            try:
                await self._hand_over([seat for one in clients if (seat := self._seats.of(one))])
            except StorageError as error:
                log.warning("push.users.waiting", reason=str(error))
                self._looks |= {one: None for one in clients if self._seats.of(one) is not None}
                return
        self._receipts.kick()

    async def _hand_over(self, seats: list[Seat]) -> None:
        waiting = await self._messages.waiting([seat.client for seat in seats])
        wanted: _Wanted = deque(
            (seat, note_id)
            for seat in seats
            for note_id in self._hands.wanted(seat.client, waiting.get(seat.client, ()))
            if not self._receipts.holds(seat.client, note_id)
        )
        while turn := self._turn(wanted):
            bodies = await self._messages.bodies(list(dict.fromkeys(id_ for _, id_ in turn)))
            for seat, note_id in turn:
                note = bodies.get(note_id)
                if note is not None and self._hands.has_room(seat.client):
                    self._give(seat, note)

    def _turn(self, wanted: _Wanted) -> list[tuple[Seat, str]]:
        """The next to be handed over, no more than may be fetched at once."""
        turn: list[tuple[Seat, str]] = []
        while wanted and len(turn) < FETCH_MAX:
            seat, note_id = wanted.popleft()
            if self._hands.has_room(seat.client):
                turn.append((seat, note_id))
        return turn

    def _give(self, seat: Seat, note: Note) -> None:
        client = seat.client
        had = self._hands.had(client, note.id) or self.earlier.had(client, note.id)
        if not self._hand(seat, note):
            return
        # What was handed live is counted by whoever sent it.
        why: Why = "again" if had else "login"
        self._recorder.handed(Told(note.app, note.id, note.job), [client], why)
        if why == "login":
            self._tallies.add(note.job, "sent")
