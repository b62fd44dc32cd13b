"""The ledger: acknowledgements, gathered and settled in batches, off the way of messages.

Nothing of it is lost while the store is away, within a bound: what could not be settled stays, in
its order, and is tried again. What is above the bound is not taken, and its notes come again.

A store that fails may have settled all the same, and says the second time that nothing waited. What
was tried before counts as arrived then: who acknowledged a note twice, the first time long ago, is
counted once too often if it does so in the moment in which the store fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from chappe.clock import Clock
from chappe.errors import StorageError
from chappe.events.pushrecorder import Ack, PushRecorder, Told, Why, is_of_topic
from chappe.push.comet.batch import Batch
from chappe.push.comet.bodies import Bodies, in_turns
from chappe.push.comet.counters import Counters
from chappe.push.comet.marking import Marking
from chappe.push.comet.once import Onces
from chappe.push.comet.parcel import Brief
from chappe.push.comet.session import DeviceSession
from chappe.push.comet.tallies import Tallies
from chappe.push.options import CometOptions
from chappe.push.state.message import MessageState

# Of one device, between two times that the store is asked: as many as may wait for it.
STRAYS_MAX = 1000


class _Entry(NamedTuple):
    """A note to clients that one of them is done with."""

    app: str
    # None: it was handed to another session of the client.
    brief: Brief | None
    why: Why
    came_us: int
    # Nobody acknowledged it; there is nothing left to be handed.
    gone: bool = False


class _Stray(NamedTuple):
    """A topic's note that was handed to another session of the client."""

    session: DeviceSession
    note_id: str
    came_us: int


class Ledger:
    """What devices have acknowledged and the store has not heard of."""

    def __init__(
        self,
        options: CometOptions,
        messages: MessageState,
        bodies: Bodies,
        marking: Marking,
        onces: Onces,
        tallies: Tallies,
        recorder: PushRecorder,
        counters: Counters,
        clock: Clock,
    ) -> None:
        self._options = options
        self._messages = messages
        self._bodies = bodies
        self._marking = marking
        self._onces = onces
        self._tallies = tallies
        self._recorder = recorder
        self._counters = counters
        self._clock = clock
        self._private: dict[tuple[str, str], _Entry] = {}
        # Those of them that the store was asked to settle, and did not answer.
        self._tried: set[tuple[str, str]] = set()
        self._strays: list[_Stray] = []
        # By client, since the store was asked last.
        self._stray_counts: dict[str, int] = {}
        self._batch: Batch[None] = Batch("ledger", self._work, at_once=1, most=1)

    def __len__(self) -> int:
        return len(self._private) + len(self._strays) + len(self._marking)

    def holds(self, client: str, note_id: str) -> bool:
        """Whether a client has acknowledged a note that the store still lets wait for it."""
        return (client, note_id) in self._private

    def acknowledge(self, session: DeviceSession, ids: Iterable[str]) -> None:
        """A device has these notes."""
        came_us = self._clock.wall_us()
        for note_id in ids:
            if len(self) >= self._options.acks_max:
                self._counters.acks_dropped += 1
                continue
            if session.done is not None and note_id in session.done:
                continue
            if not self._may_stray(session, note_id):
                self._counters.acks_dropped += 1
                continue
            self._counters.acks += 1
            flight = session.acknowledge(note_id, self._options.done_max)
            brief = None if flight is None else flight.brief
            why: Why = "login" if flight is None else flight.why
            if not is_of_topic(note_id):
                self._enter((session.client, note_id), _Entry(session.app, brief, why, came_us))
            elif brief is None:
                self._strays.append(_Stray(session, note_id, came_us))
            else:
                self._marking.settle(session, brief, Ack(session.client, brief.told, why, came_us))
        self.kick()

    def _enter(self, key: tuple[str, str], entry: _Entry) -> None:
        """The first acknowledgement counts, as it knows how the note was handed over."""
        before = self._private.get(key)
        if before is None or before.gone:
            self._private[key] = entry

    def _may_stray(self, session: DeviceSession, note_id: str) -> bool:
        """Whether a device may acknowledge a note that it was not handed on this connection: so
        many, or one device could fill the ledger for all."""
        if session.flights is not None and note_id in session.flights:
            return True
        count = self._stray_counts.get(session.client, 0)
        if count >= STRAYS_MAX:
            return False
        self._stray_counts[session.client] = count + 1
        return True

    def settle_away(self, session: DeviceSession, note_id: str, brief: Brief | None) -> None:
        """There is nothing to be handed of a note any more."""
        if len(self) >= self._options.acks_max:
            return
        if not is_of_topic(note_id):
            entry = _Entry(session.app, brief, "login", 0, gone=True)
            self._private.setdefault((session.client, note_id), entry)
        elif brief is not None:
            self._marking.settle(session, brief, None)
        self.kick()

    def kick(self) -> None:
        """Settle what there is, if there is any."""
        if self or self._tallies or self._onces:
            self._batch.put(None)

    async def idle(self) -> None:
        """Wait until all is settled, or the store has failed."""
        await self._batch.idle()

    def cancel(self) -> None:
        """Settle no more."""
        self._batch.cancel()

    async def _work(self, _: list[None]) -> None:
        self._stray_counts.clear()
        while self._private or self._strays or self._marking or self._tallies or self._onces:
            try:
                await self._find_strays()
                await self._settle()
                for ack in await self._marking.advance(self._options.ack_batch):
                    self._tallies.add(ack.note.job, "arrived")
                await self._onces.take_back()
                await self._tallies.tell()
            except StorageError:
                self._counters.store_failures["ledger"] += 1
                return

    async def _find_strays(self) -> None:
        """Learn where in a topic those notes are that another session was handed."""
        strays = self._strays[: self._options.ack_batch]
        for some in in_turns(dict.fromkeys(stray.note_id for stray in strays)):
            parcels = await self._bodies.fetch(some)
            for stray in strays:
                parcel = parcels.get(stray.note_id)
                if parcel is not None and parcel.note.app == stray.session.app:
                    brief = parcel.brief
                    ack = Ack(stray.session.client, brief.told, "login", stray.came_us)
                    self._marking.settle(stray.session, brief, ack)
        del self._strays[: len(strays)]

    async def _settle(self) -> None:
        """Let private notes wait no more; what waited until now is acknowledged first now."""
        some = dict(islice(self._private.items(), self._options.ack_batch))
        if not some:
            return
        briefs = await self._briefs(some)
        ids: dict[str, list[str]] = {}
        for client, note_id in some:
            ids.setdefault(client, []).append(note_id)
        waited = await self._try_to_settle(ids)
        settled = {(client, note_id) for client, notes in waited.items() for note_id in notes}
        acks = []
        for key in some:
            entry = self._private.pop(key)
            if key not in settled and key not in self._tried:
                continue
            (client, note_id), brief = key, briefs.get(key)
            told = Told(entry.app, note_id, "") if brief is None else brief.told
            if entry.gone:
                self._recorder.dropped(told, "expired", [client])
                continue
            acks.append(Ack(client, told, entry.why, entry.came_us))
            self._tallies.add(told.job, "arrived")
            if brief is not None and brief.once_of is not None:
                self._onces.add(brief, client)
        self._tried.difference_update(some)
        self._recorder.acked(acks)

    async def _try_to_settle(self, ids: dict[str, list[str]]) -> Mapping[str, Sequence[str]]:
        try:
            return await self._messages.settle(ids)
        except StorageError:
            self._tried.update((client, note_id) for client in ids for note_id in ids[client])
            raise

    async def _briefs(self, entries: dict[tuple[str, str], _Entry]) -> dict[tuple[str, str], Brief]:
        found = {key: each.brief for key, each in entries.items() if each.brief is not None}
        unknown = [k for k, each in entries.items() if each.brief is None and not each.gone]
        for some in in_turns(dict.fromkeys(note_id for _, note_id in unknown)):
            parcels = await self._bodies.fetch(some)
            for client, note_id in unknown:
                parcel = parcels.get(note_id)
                if parcel is not None and parcel.note.app == entries[client, note_id].app:
                    found[client, note_id] = parcel.brief
        return found
