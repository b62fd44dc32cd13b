"""Lists: what waits for a device is looked up and handed to it, as much as there is room for.

It is asked for by the device (`answer`), made up for when there is room again (`more`), or sent
once more because it was not acknowledged (`again`, P7). Ids of many devices are looked up at once;
bodies come through the cache. What is gone, expired or cancelled, is settled away.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from itertools import islice
from typing import NamedTuple

from chappe.clock import Clock
from chappe.errors import StorageError
from chappe.events.pushrecorder import PushRecorder, Told, Why
from chappe.push.comet.batch import Batch
from chappe.push.comet.bodies import FETCH_MAX, Bodies, in_turns
from chappe.push.comet.counters import Counters
from chappe.push.comet.earlier import Earlier
from chappe.push.comet.handing import Handings
from chappe.push.comet.ledger import Ledger
from chappe.push.comet.outbox import Outboxes, Page
from chappe.push.comet.parcel import Brief, Parcel
from chappe.push.comet.session import DeviceSession
from chappe.push.comet.tallies import Tallies
from chappe.push.options import CometOptions
from chappe.push.state.states import States
from chappe.wire.push import PushError

# Of each topic so many at the least, however many topics a client has.
_PER_TOPIC_MIN = 10
# A topic's note has its place before its body is written. Whoever was killed in between may be
# asked again by an app's server that insists; what has no body after that long gets none.
_WRITTEN_MS = 3600 * 1000


class Cause(IntEnum):
    """Why something is looked up."""

    ANSWER = 0
    MORE = 1
    AGAIN = 2


class _Asked(NamedTuple):
    session: DeviceSession
    cause: Cause
    # To be sent again.
    ids: tuple[str, ...] = ()


# An app, and marks in its topics.
_Place = tuple[str, frozenset[tuple[str, int]]]


class Lists:
    """Devices that wait for what waits for them."""

    def __init__(
        self,
        options: CometOptions,
        states: States,
        bodies: Bodies,
        handings: Handings,
        outboxes: Outboxes,
        ledger: Ledger,
        earlier: Earlier,
        tallies: Tallies,
        recorder: PushRecorder,
        counters: Counters,
        clock: Clock,
        answered: Callable[[DeviceSession, PushError | None, str], None],
    ) -> None:
        self._options = options
        self._states = states
        self._bodies = bodies
        self._handings = handings
        self._outboxes = outboxes
        self._ledger = ledger
        self._earlier = earlier
        self._tallies = tallies
        self._recorder = recorder
        self._counters = counters
        self._clock = clock
        self._answered = answered
        # One that is looked up is here until it is done; each session once for each cause.
        self._under_way: set[tuple[DeviceSession, Cause]] = set()
        # Those that the store had no answer for.
        self._failed: dict[DeviceSession, None] = {}
        # Of the batch that is looked up: what topics have after some marks.
        self._found: dict[_Place, dict[str, list[tuple[int, str]]]] = {}
        self._batch: Batch[_Asked] = Batch(
            "lists",
            self._work,
            at_once=options.list_batch,
            most=len(Cause) * options.sessions_max,
        )

    def answer(self, session: DeviceSession) -> None:
        """A device has asked for its messages."""
        self._ask(_Asked(session, Cause.ANSWER))

    def more(self, session: DeviceSession) -> None:
        """There is room for more of what waits."""
        self._ask(_Asked(session, Cause.MORE))

    def again(self, session: DeviceSession, ids: Sequence[str]) -> None:
        """These were not acknowledged for too long."""
        self._ask(_Asked(session, Cause.AGAIN, tuple(ids)))

    def kick(self) -> None:
        """Ask once more for those that the store had no answer for."""
        failed, self._failed = self._failed, {}
        for session in failed:
            if not session.closed:
                self.more(session)

    async def idle(self) -> None:
        """Wait until all is looked up."""
        await self._batch.idle()

    def cancel(self) -> None:
        """Look up nothing more."""
        self._batch.cancel()

    def _ask(self, asked: _Asked) -> None:
        key = (asked.session, asked.cause)
        if key not in self._under_way and self._batch.put(asked):
            self._under_way.add(key)

    async def _work(self, some: list[_Asked]) -> None:
        self._found.clear()
        for each in some:
            self._under_way.discard((each.session, each.cause))
        left = deque(each for each in some if not each.session.closed)
        for asked in left:
            if asked.cause is not Cause.AGAIN:
                # Before the store is asked: what comes after that is not in its answer.
                asked.session.behind = False
        try:
            waiting = await self._waiting(left)
            while left:
                asked = left[0]
                if asked.cause is Cause.AGAIN:
                    await self._send_again(asked.session, asked.ids)
                else:
                    await self._list(asked, waiting.get(asked.session.client, []))
                left.popleft()
        except StorageError:
            self._counters.store_failures["lists"] += 1
            for asked in left:
                self._fail(asked)

    async def _waiting(self, asked: Iterable[_Asked]) -> dict[str, list[str]]:
        """What waits for each of many; the bodies of the first of it are in the cache then."""
        sessions = [each.session for each in asked if each.cause is not Cause.AGAIN]
        if not sessions:
            return {}
        waiting = await self._states.message.waiting([session.client for session in sessions])
        wanted = {
            session.client: [
                note_id
                for note_id in waiting.get(session.client, [])
                if not self._has(session, note_id)
            ]
            for session in sessions
        }
        ids = dict.fromkeys(note_id for ids in wanted.values() for note_id in ids)
        await self._bodies.fetch(list(islice(ids, FETCH_MAX)))
        return wanted

    def _fail(self, asked: _Asked) -> None:
        """Try again when the store may be back."""
        if asked.session.closed:
            return
        if asked.cause is Cause.ANSWER:
            reason = "the store is away; what waits comes later"
            self._answered(asked.session, PushError.SERVER, reason)
        if asked.cause is not Cause.AGAIN:
            self._failed[asked.session] = None

    async def _list(self, asked: _Asked, waiting: list[str]) -> None:
        session = asked.session
        places = await self._of_topics(session)
        order = await self._order(session, [*waiting, *places], places)
        handed: list[Parcel] = []
        try:
            for some in in_turns(order):
                parcels = await self._bodies.fetch(some)
                if session.closed or not self._take(session, parcels, some, handed):
                    break
        except StorageError:
            # What was taken counts as had, so it goes out; the rest is asked for once more.
            self._put(session, handed)
            raise
        if asked.cause is not Cause.ANSWER:
            self._put(session, handed)
        elif not session.closed:
            handed = self._kept(session, handed)
            self._tell(session, handed, "login")
            self._outboxes.put(session, Page(handed))
            self._answered(session, None, "")

    def _put(self, session: DeviceSession, handed: Sequence[Parcel]) -> None:
        """Let notes be written one by one."""
        if session.closed:
            return
        handed = self._kept(session, handed)
        self._tell(session, handed, "login")
        for parcel in handed:
            self._outboxes.put(session, parcel)

    def _kept(self, session: DeviceSession, handed: Sequence[Parcel]) -> list[Parcel]:
        """Those of what was taken that were not taken back while the store was asked for more."""
        flights = session.flights or {}
        return [parcel for parcel in handed if parcel.note.id in flights]

    def _take(
        self,
        session: DeviceSession,
        parcels: dict[str, Parcel],
        order: Sequence[str],
        handed: list[Parcel],
    ) -> bool:
        """Take what there is room for, in order; False if there was not enough."""
        room = self._outboxes.room(session) - sum(parcel.size for parcel in handed)
        for note_id in order:
            parcel = parcels.get(note_id)
            if parcel is None or session.has_had(note_id):
                continue
            if parcel.size > room:
                session.behind = True
            elif self._handings.take(session, parcel, "login"):
                handed.append(parcel)
                room -= parcel.size
            if session.behind:
                return False
        return True

    async def _of_topics(self, session: DeviceSession) -> dict[str, Brief]:
        """Notes that came after the marks of a session's topics."""
        topics = session.topics
        if not topics:
            return {}
        marks = {name: progress.mark for name, progress in topics.items()}
        limit = max(_PER_TOPIC_MIN, self._options.list_notes_max // len(marks))
        found = await self._since(session.app, marks, limit)
        places: dict[str, Brief] = {}
        for name, listed in found.items():
            progress = topics.get(name)
            if progress is None:
                continue
            progress.listed(position for position, _ in listed)
            session.behind |= len(listed) >= limit
            for at, note_id in listed:
                if not progress.has(at) and not session.has_had(note_id):
                    places[note_id] = Brief(Told(session.app, note_id, ""), name, at, None)
        return places

    async def _since(
        self, app: str, marks: dict[str, int], limit: int
    ) -> dict[str, list[tuple[int, str]]]:
        """What came after marks. Those of a batch are asked for once: all of its devices get what
        comes from now on as it comes, and many are as far as each other."""
        key = (app, frozenset(marks.items()))
        found = self._found.get(key)
        if found is None:
            found = await self._states.topic.since(app, marks, self._clock.wall_ms(), limit)
            self._found[key] = found
        return found

    async def _order(
        self, session: DeviceSession, ids: Sequence[str], places: Mapping[str, Brief]
    ) -> list[str]:
        """Those that may be handed out, what is urgent first, then what is old; the others are
        settled away."""
        session.behind |= len(ids) > self._options.flights_max
        ranks: list[tuple[int, int, str]] = []
        for some in in_turns(ids[: self._options.flights_max]):
            parcels = await self._bodies.fetch(some)
            ranks += [(-p.note.priority, p.note.ts_ms, note_id) for note_id, p in parcels.items()]
            for note_id in some:
                if note_id not in parcels and not self._may_come(places.get(note_id)):
                    self._ledger.settle_away(session, note_id, places.get(note_id))
        return [note_id for _, _, note_id in sorted(ranks)]

    def _may_come(self, place: Brief | None) -> bool:
        """Whether the body of a topic's note may be written yet."""
        return place is not None and self._clock.wall_ms() - place.position < _WRITTEN_MS

    async def _send_again(self, session: DeviceSession, ids: Sequence[str]) -> None:
        for some in in_turns(ids):
            parcels = await self._bodies.fetch(some)
            flights = session.flights
            if session.closed or flights is None:
                break
            handed: list[Parcel] = []
            for note_id in some:
                parcel = parcels.get(note_id)
                if note_id not in flights:
                    continue
                if parcel is None:
                    self._ledger.settle_away(session, note_id, flights.pop(note_id).brief)
                    continue
                if self._outboxes.room(session) < parcel.size:
                    break
                self._handings.fly(session, parcel, "again")
                self._outboxes.put(session, parcel)
                handed.append(parcel)
            self._tell(session, handed, "again")

    def _tell(self, session: DeviceSession, handed: Sequence[Parcel], why: Why) -> None:
        for parcel in handed:
            told = parcel.brief.told
            how: Why = "again" if self._earlier.had(session.client, told.id) else why
            self._recorder.handed(told, [session.client], how)
            if how == "login":
                # What was handed live was counted by whoever sent it.
                self._tallies.add(told.job, "sent")

    def _has(self, session: DeviceSession, note_id: str) -> bool:
        return session.has_had(note_id) or self._ledger.holds(session.client, note_id)
