"""Receipts: what users have shown, settled in batches.

What could not be settled stays, within a bound, and is tried again; above it, notes come again. A
store that fails may have settled all the same, and says the second time that nothing waited: what
was tried before counts as settled then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple, Protocol

import structlog

from chappe.errors import StorageError
from chappe.events.pushrecorder import Ack, PushRecorder, Told
from chappe.push.comet.batch import Batch
from chappe.push.comet.bodies import FETCH_MAX
from chappe.push.comet.once import Onces
from chappe.push.comet.parcel import Brief, Parcel
from chappe.push.comet.tallies import Tallies
from chappe.push.names import is_id
from chappe.push.note import Note
from chappe.push.state.message import MessageState
from chappe.push.users.seats import Seat

log = structlog.get_logger()

# Acknowledgements that wait for the store.
SHOWN_MAX = 100_000
# Of one user: as many as may wait for it, or one could fill the others' room.
USER_SHOWN_MAX = 1000


class _Receipt(NamedTuple):
    seat: Seat
    came_us: int
    # Where it was shown.
    session: str


class Retract(Protocol):
    """Tell a user's sessions, besides the one of an id, to take a note back."""

    def __call__(self, app: str, user: str, note_id: str, *, besides: str | None) -> None: ...


class Receipts:
    """What users have shown, and the store has not heard of."""

    def __init__(
        self,
        messages: MessageState,
        onces: Onces,
        tallies: Tallies,
        recorder: PushRecorder,
        retract: Retract,
    ) -> None:
        self._messages = messages
        self._onces = onces
        self._tallies = tallies
        self._recorder = recorder
        self._retract = retract
        # By client and note.
        self._shown: dict[tuple[str, str], _Receipt] = {}
        self._counts: Counter[str] = Counter()
        # Those of them that the store was asked to settle, and did not answer.
        self._tried: set[tuple[str, str]] = set()
        self._batch: Batch[None] = Batch("shown", self._work, at_once=1, most=1)

    def __len__(self) -> int:
        return len(self._shown)

    def holds(self, client: str, note_id: str) -> bool:
        """Whether a user has shown a note that the store still lets wait for it."""
        return (client, note_id) in self._shown

    def add(self, seat: Seat, ids: Iterable[str], came_us: int, session: str) -> None:
        """A user has shown these, in a session of that id."""
        for note_id in ids:
            key = seat.client, note_id
            if key in self._shown or not is_id(note_id, "p"):
                continue
            if len(self) < SHOWN_MAX and self._counts[seat.client] < USER_SHOWN_MAX:
                self._shown[key] = _Receipt(seat, came_us, session)
                self._counts[seat.client] += 1
        self.kick()

    def kick(self) -> None:
        """Settle what there is, if there is any."""
        if self._shown or self._tallies or self._onces:
            self._batch.put(None)

    async def idle(self) -> None:
        """Wait until all is settled, or the store has failed."""
        await self._batch.idle()

    async def _work(self, _: list[None]) -> None:
        while self._shown or self._tallies or self._onces:
            try:
                await self._settle(dict(islice(self._shown.items(), FETCH_MAX)))
                await self._onces.take_back()
                await self._tallies.tell()
            except StorageError as error:
                log.warning("push.users.shown", reason=str(error))
                return

    async def _settle(self, some: dict[tuple[str, str], _Receipt]) -> None:
        """Let notes wait no more; what waited until now is acknowledged first now."""
        if not some:
            return
        bodies = await self._messages.bodies(list(dict.fromkeys(note_id for _, note_id in some)))
        settled: dict[str, list[str]] = {}
        for client, note_id in some:
            settled.setdefault(client, []).append(note_id)
        before = self._tried & some.keys()
        self._tried |= some.keys()
        waited = await self._messages.settle(settled)
        self._tried -= some.keys()
        acks = []
        for (client, note_id), (seat, came_us, session) in some.items():
            self._forget(client, note_id)
            if note_id not in waited.get(client, ()) and (client, note_id) not in before:
                continue
            brief = _brief(seat, note_id, bodies.get(note_id))
            acks.append(Ack(client, brief.told, "live", came_us))
            self._tallies.add(brief.told.job, "arrived")
            if brief.once_of is not None:
                self._onces.add(brief, client)
                self._retract(seat.app, seat.user, note_id, besides=session)
        self._recorder.acked(acks)

    def _forget(self, client: str, note_id: str) -> None:
        del self._shown[client, note_id]
        self._counts[client] -= 1
        if not self._counts[client]:
            del self._counts[client]


def _brief(seat: Seat, note_id: str, note: Note | None) -> Brief:
    """What is to be known of a note; of one that is gone, that it was."""
    if note is not None and note.app == seat.key:
        return Parcel(note).brief
    return Brief(Told(seat.key, note_id, ""), None, 0, None)
