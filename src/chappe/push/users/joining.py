"""Joining: a user's further sessions, which are handed what the others have and did not show."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import structlog

from chappe.errors import StorageError
from chappe.events.pushrecorder import PushRecorder, Told
from chappe.push.comet.batch import Batch
from chappe.push.comet.bodies import FETCH_MAX
from chappe.push.note import Note
from chappe.push.state.message import MessageState
from chappe.push.users.hands import BYTES_MAX, NOTE_BYTES, Hands
from chappe.push.users.receipts import Receipts
from chappe.push.users.seats import Seat, Seats

log = structlog.get_logger()

# Sessions that wait for the store; to what is above, notes come again in their time.
JOINED_MAX = 100_000
# Looked up in one go.
AT_ONCE = 64


class Joining:
    """Hands a session what its user has in its hands, and no other session once more."""

    def __init__(
        self,
        messages: MessageState,
        seats: Seats,
        hands: Hands,
        receipts: Receipts,
        recorder: PushRecorder,
        hand: Callable[[Seat, Note, str], bool],
        look: Callable[[str], None],
    ) -> None:
        self._messages = messages
        self._seats = seats
        self._hands = hands
        self._receipts = receipts
        self._recorder = recorder
        self._hand = hand
        # What the user does not have comes to all of its sessions.
        self._look = look
        # By client and session.
        self._joined: dict[tuple[str, str], None] = {}
        self._batch: Batch[None] = Batch("joining", self._work, at_once=1, most=1)

    def add(self, client: str, session: str) -> None:
        """A user that is here has another session."""
        if len(self._joined) < JOINED_MAX:
            self._joined[client, session] = None
            self.kick()

    def kick(self) -> None:
        """Go on, if anybody waits."""
        if self._joined:
            self._batch.put(None)

    async def idle(self) -> None:
        """Wait until all have what they are to have, or the store has failed."""
        await self._batch.idle()

    async def _work(self, _: list[None]) -> None:
        while self._joined:
            some = list(islice(self._joined, AT_ONCE))
            try:
                await self._hand_over(some)
            except StorageError as error:
                log.warning("push.users.joining", reason=str(error))
                return
            for each in some:
                del self._joined[each]

    async def _hand_over(self, some: list[tuple[str, str]]) -> None:
        sessions: dict[str, list[str]] = {}
        for client, session in some:
            sessions.setdefault(client, []).append(session)
        waiting = await self._messages.waiting(list(sessions))
        for client, joined in sessions.items():
            seat = self._seats.of(client)
            if seat is None:
                continue
            wanted = [
                note_id
                for note_id in waiting.get(client, ())
                if self._hands.had(client, note_id) and not self._receipts.holds(client, note_id)
            ]
            await self._hand_to(seat, joined, wanted)
            self._look(client)

    async def _hand_to(self, seat: Seat, sessions: list[str], wanted: list[str]) -> None:
        """Hand notes over for as long as there is room; what there is none for is put off."""
        size = at = 0
        while at < len(wanted) and size < BYTES_MAX:
            turn = wanted[at : at + FETCH_MAX]
            bodies = await self._messages.bodies(turn)
            for note_id in turn:
                if size >= BYTES_MAX:
                    break
                at += 1
                note = bodies.get(note_id)
                if note is None:
                    continue
                size += len(note.content) + NOTE_BYTES
                # All of them, not until one took it.
                took = [session for session in sessions if self._hand(seat, note, session)]
                if took:
                    told = Told(note.app, note.id, note.job)
                    self._recorder.handed(told, [seat.client], "again")
        self._hands.put_off(seat.client, wanted[at:])
