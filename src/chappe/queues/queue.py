"""One queue: its lanes, its groups, and the commits that make what they do durable.

    send, ack, ...  --> records, applied to the state in order --+
    end of the turn --> one commit of them all ------------------+--> storage
    committed       --> replies, deliveries

All that happens in one turn of the loop becomes durable together: a commit costs the same for one
record and for a thousand. Whatever is visible outside happens after that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol
from zlib import crc32

import structlog

from chappe.errors import BadRequest, Overload, RequestError, StorageError
from chappe.queues.awaited import Awaited
from chappe.queues.consumer import Item, Loans
from chappe.queues.delays import Delays
from chappe.queues.filter import describe
from chappe.queues.group import Group
from chappe.queues.letters import Letters
from chappe.queues.options import QueueLimits
from chappe.queues.record import DELAY_LANE, Done, Record, Registered, Stored, Tried, Unregistered
from chappe.queues.state import QueueState
from chappe.queues.storage import Storage

if TYPE_CHECKING:
    from chappe.hub.session import Session

log = structlog.get_logger()

# What a record has besides its payload, headers and all, unless there are unusually many.
_RECORD_BYTES = 512

Told = Callable[[], None]
Refused = Callable[[RequestError], None]


class Outlet(Protocol):
    """Where a queue's decisions are carried out."""

    def deliver(self, session: Session, items: Sequence[Item]) -> bool:
        """Hand messages of one group to a consumer; False when there is no room for them."""
        ...

    def fetched(self, session: Session, request: int | None, n: int) -> None:
        """A fetch is over and brought so many."""
        ...

    def refused(self, session: Session, request: int | None, error: RequestError) -> None:
        """A fetch that waited is answered with an error."""
        ...

    def dropped(self, reason: str, messages: int) -> None:
        """Messages were lost, and why."""
        ...

    def died(self, queue: str, letter: Stored) -> None:
        """A message is a dead letter: its sender is to be told."""
        ...


class Keeper(Protocol):
    """Whoever looks after a queue: the broker."""

    limits: QueueLimits
    loans: Loans
    name: str

    @property
    def now(self) -> float:
        """The loop's time."""
        ...

    @property
    def now_ms(self) -> int:
        """The wall time."""
        ...

    def wake(self, queue: Queue) -> None:
        """Run a queue at the end of this turn."""
        ...

    def settle(self) -> None:
        """Run queues whose commits take no time, now instead of at the end of the turn."""
        ...

    def arm(self) -> None:
        """Ring in time for the deadlines that were added."""
        ...

    def failed(self, queue: Queue, error: RequestError) -> None:
        """A commit of a queue failed: what it knows is not what is stored."""
        ...


class Queue:
    """A queue, as long as it lives on this node."""

    def __init__(self, state: QueueState, storage: Storage, keeper: Keeper, outlet: Outlet) -> None:
        self.state = state
        self.storage = storage
        self.keeper = keeper
        self.outlet = outlet
        self.limits = keeper.limits
        self.loans = keeper.loans
        self.address = state.address
        self.closed = False
        # The last message of each lane that is durable.
        self.committed = dict(state.heads)
        self.groups: dict[str, Group] = {}
        # Those that are not durable yet: what is asked of them waits.
        self.unborn: dict[str, None] = {}
        # Which session answers to a consumer's name.
        self.holders: dict[str, Session] = {}
        # How many messages, and bytes of them, there is room for at least.
        self._room = self._room_bytes = 0
        # What the next commit says, and about how many bytes that is.
        self._records: list[Record] = []
        self._adding = 0
        self._stored: list[Stored] = []
        self._told: list[tuple[Told, Refused | None]] = []
        self._touched: dict[Group, None] = {}
        self._handing: dict[Group, None] = {}
        self.delays = Delays(self)
        self.letters = Letters(self)
        self.awaited = Awaited(self)
        for group in state.readers():
            if not group.expected:
                self.groups[group.name] = Group(self, group)

    @property
    def now_ms(self) -> int:
        """The wall time."""
        return self.keeper.now_ms

    def add(self, record: Record) -> None:
        """Take a record into the state and the next commit."""
        self.state.apply(record, self.limits)
        self._records.append(record)
        if type(record) is Stored:
            self._stored.append(record)
        self.keeper.wake(self)

    def after(self, told: Told, refused: Refused | None = None) -> None:
        """Call back once all that was added so far is durable, or has failed to be."""
        self._told.append((told, refused))
        self.keeper.wake(self)

    def touch(self, group: Group) -> None:
        """A group has something to say in the next commit."""
        self._touched[group] = None
        self.keeper.wake(self)

    def hand_out_soon(self, group: Group) -> None:
        """Let a group hand out what it has at the end of this turn."""
        self._handing[group] = None
        self.keeper.wake(self)

    def run(self) -> None:
        """The turn is over: commit what it brought, hand out what may be."""
        handing, self._handing = self._handing, {}
        for group in handing:
            group.lending.hand_out(self.keeper.now)
        self._commit()

    def _commit(self) -> None:
        marks: list[Tried] = []
        finished: list[Done] = []
        touched, self._touched = self._touched, {}
        for group in touched:
            if group.closed:
                continue
            for record in group.report.records():
                self.state.apply(record, self.limits)
                self._records.append(record)
                if isinstance(record, Tried):
                    marks.append(record)
                else:
                    finished.append(record)
        if not self._records and not self._told:
            return
        records, self._records = self._records, []
        self._adding = 0
        stored, self._stored = self._stored, []
        told, self._told = self._told, []

        def done(error: RequestError | None) -> None:
            if error is None:
                self._committed(stored, marks, finished, told)
            else:
                self._fail(told, error)

        try:
            self.storage.commit(self.state, records, done)
        except Overload as error:
            self._fail(told, error)

    def _committed(
        self,
        stored: list[Stored],
        marks: list[Tried],
        finished: list[Done],
        told: list[tuple[Told, Refused | None]],
    ) -> None:
        committed, groups = self.committed, self.groups
        for message in stored:
            committed[message.lane] = message.seq
        # What was stored is durable even if this queue lives elsewhere by now.
        for tell, _ in told:
            tell()
        if self.closed:
            return
        self._offer(stored)
        for mark in marks:
            if mark.group in groups:
                groups[mark.group].intake.grant(mark.lane, mark.seq)
        if finished:
            self._discard(finished)
        now = self.keeper.now
        for group in list(groups.values()):
            if group.waiting:
                group.lending.hand_out(now)
        self.keeper.arm()

    def _offer(self, stored: list[Stored]) -> None:
        """Let those who wait know of messages that are durable."""
        lanes: dict[int, list[Stored]] = {}
        for message in stored:
            if message.lane > 0:
                lanes.setdefault(message.lane, []).append(message)
            elif message.lane == DELAY_LANE:
                self.delays.add(message)
        for group in list(self.groups.values()):
            for lane, messages in lanes.items():
                group.intake.offer(lane, messages)

    def _discard(self, finished: list[Done]) -> None:
        """Let the storage forget what every group is done with."""
        readers = list(self.state.readers())
        for record in finished:
            ranges, lane = record.ranges, record.lane
            seqs = [
                seq
                for at in range(0, len(ranges), 2)
                for seq in range(ranges[at], ranges[at + 1] + 1)
            ]
            if len(readers) != 1 or readers[0].name != record.group:
                seqs = [s for s in seqs if all(one.at(lane).is_done(s) for one in readers)]
            if not readers:
                continue  # whoever comes first begins where this one ended
            if seqs:
                self.storage.discard(self.state, lane, seqs)

    def free(self, lane: int, seqs: Iterable[int]) -> None:
        """Let the storage forget those of them that every group is done with, once that is durable;
        while there is no group, somebody may come for them."""
        readers = list(self.state.readers())
        gone = [seq for seq in seqs if all(one.at(lane).is_done(seq) for one in readers)]
        if readers and gone:
            self.after(lambda: self.storage.discard(self.state, lane, gone))

    def _fail(self, told: list[tuple[Told, Refused | None]], error: RequestError) -> None:
        for _, refuse in told:
            if refuse is not None:
                refuse(error)
        if not self.closed:
            self.keeper.failed(self, error)

    def unreadable(self, error: StorageError) -> None:
        """What is stored could not be read."""
        log.error("queue.unreadable", queue=self.address, app=self.state.app, reason=str(error))

    def send(self, message: Stored, told: Callable[[int], None], refused: Refused) -> None:
        """Store a message in one of the lanes, or until it is due; tells its id once it is durable.

        Raises Overload when there is no room, BadRequest if there never is.
        """
        known = self.state.producers.known(message, self.limits)
        if known is not None:
            self.after(lambda: told(known), refused)
            return
        size = len(message.payload)
        self._check_room(size)
        self.storage.check(self._adding + size + _RECORD_BYTES)
        if message.consumers is None and self.state.options.consumers is not None:
            message.consumers = self.state.options.consumers
        if message.due_ms is not None:
            self.delays.check_room()
            self.place(message, DELAY_LANE)
        else:
            self.deliver(message)
        self._told.append((partial(told, message.id), refused))

    def send_all(self, messages: list[Stored], size: int, told: Told, refused: Refused) -> bool:
        """Store messages that have nothing to be known by, of so many bytes together; tells once
        they are durable. False, and nothing happened, if each has to be looked at."""
        state, options = self.state, self.state.options
        if options.consumers is not None or not self._has_room(len(messages), size):
            return False
        try:
            self.storage.check(self._adding + size + len(messages) * _RECORD_BYTES)
        except Overload:
            return False
        if len(state.lanes) > 1:
            for message in messages:
                self.place(message, self._choose(message.key))
        else:
            state.place(messages, state.lanes[0], self.limits)
            self._adding += size + len(messages) * _RECORD_BYTES
            self._records += messages
            self._stored += messages
        self._room -= len(messages)
        self._room_bytes -= size
        self._told.append((told, refused))
        self.keeper.wake(self)
        return True

    def deliver(self, message: Stored) -> None:
        """Give a message its place in a lane, to be delivered."""
        if message.consumers is not None:
            self.awaited.expect(message)
        self.place(message, self._choose(message.key))
        if message.consumers is not None:
            self.awaited.stored(message)

    def place(self, message: Stored, lane: int) -> None:
        """Give a message its place in a lane."""
        self.state.place((message,), lane, self.limits)
        self._adding += len(message.payload) + _RECORD_BYTES
        self._records.append(message)
        self._stored.append(message)
        self.keeper.wake(self)

    def _check_room(self, size: int) -> None:
        options = self.state.options
        if not self._has_room(1, size):
            if size > options.bytes_max:
                raise BadRequest(f"data: {size} bytes, {self.address} holds {options.bytes_max}")
            if self._room < 1:
                depth = options.depth_max - self._room
                raise Overload(f"{self.address} holds {depth} messages already")
            if self._room_bytes < size:
                held = options.bytes_max - self._room_bytes
                raise Overload(f"{self.address} holds {held} bytes already")
            raise Overload("the volatile queues of this node are full")
        self._room -= 1
        self._room_bytes -= size

    def _has_room(self, count: int, size: int) -> bool:
        """Whether so many messages fit; until what was found is used up nobody looks again."""
        options, state = self.state.options, self.state
        if self._room < count or self._room_bytes < size:
            depth, held = state.depth() + len(state.delayed), state.waiting_bytes()
            self._room, self._room_bytes = options.depth_max - depth, options.bytes_max - held
            if self._room < count or self._room_bytes < size:
                return False
        return not options.volatile or self.loans.bytes_held + size <= self.limits.bytes_max

    def redefined(self) -> None:
        """The queue has other options, or more lanes."""
        self._room = self._room_bytes = 0
        for group in self.groups.values():
            for lane in self.state.lanes:
                group.intake.add_lane(lane)

    def _choose(self, key: str | None) -> int:
        """The lane of a key, or the one with the least to do (Q4)."""
        lanes, state = self.state.lanes, self.state
        if len(lanes) == 1:
            return lanes[0]
        if key is not None:
            return lanes[crc32(key.encode()) % state.key_lanes]
        return min(lanes, key=state.load)

    def group(self, name: str) -> Group:
        """The group of that name, made if it is not there."""
        group = self.groups.get(name)
        if group is None:
            self.register(name, "", None, None)
            group = self.groups[name]
        return group

    def register(
        self,
        name: str,
        consumer: str,
        tags: list[str] | None,
        headers: dict[str, str] | None,
        *,
        new: bool = False,
    ) -> bool:
        """Let there be a group with a consumer in it; whether that is new.

        Raises BadRequest for another filter than the group has, Overload when there are too many.
        """
        known = self.state.groups.get(name)
        if known is not None and not known.expected:
            if (tags, headers) != (None, None) and (tags, headers) != (known.tags, known.headers):
                raise BadRequest(
                    f"tags: group {name!r} was registered with "
                    f"{describe(known.tags, known.headers)}; all of a group take the same"
                )
            if not consumer or consumer in known.consumers:
                return False
            tags, headers = known.tags, known.headers
        elif known is None and sum(1 for _ in self.state.readers()) >= self.limits.groups_max:
            raise Overload(f"{self.address} has {self.limits.groups_max} groups already")
        if known is not None and len(known.consumers) >= self.limits.consumers_max:
            raise Overload(f"group {name!r} has {self.limits.consumers_max} consumers already")
        # Somebody has to take what fills a disk.
        self.storage.check(freeing=True)
        now_ms = self.keeper.now_ms
        number = self.state.number
        self.add(Registered(number, name, consumer, tags, headers, now_ms, expected=False, new=new))
        if name not in self.groups:
            self.groups[name] = Group(self, self.state.groups[name])
            self.unborn[name] = None
            self.after(lambda: self.unborn.pop(name, None))
        awaited = self.state.groups.get(consumer)
        if known is None and not new and awaited is not None and awaited.expected:
            # It came as a member of this group, which begins with all that waited for it.
            self.drop_group(consumer)
        return True

    def unregister(self, name: str, consumer: str) -> list[Session]:
        """Let a group have a consumer less, or without a name be no more; raises BadRequest.

        Returns who was a consumer of a group that is gone.
        """
        known = self.state.groups.get(name)
        if known is None or name.startswith("!"):
            raise BadRequest(f"group: {self.address} has none named {name!r}")
        if consumer and consumer not in known.consumers:
            raise BadRequest(f"name: {consumer!r} is not registered in group {name!r}")
        self.storage.check(freeing=True)
        if consumer:
            self.add(Unregistered(self.state.number, name, consumer))
        self.holders.pop(consumer, None)
        left = not consumer or (consumer == name and not known.consumers)
        if not left:
            return []
        for one in known.consumers:
            self.holders.pop(one, None)
        self.drop_group(name)
        group = self.groups.pop(name, None)
        error = BadRequest(f"group: {name!r} was given up")
        return group.close(error) if group is not None else []

    def drop_group(self, name: str) -> None:
        """Let a group be no more: what only it was not done with nobody waits for."""
        state = self.state
        left = state.groups[name]
        self.add(Unregistered(state.number, name))
        others = list(state.readers())
        for lane, progress in left.progress.items():
            upto = min((one.at(lane).mark for one in others), default=0)
            seqs = range(progress.low + 1, min(upto, state.heads[lane]) + 1)
            self.free(lane, (seq for seq in seqs if not progress.is_done(seq)))

    def consuming(self) -> list[tuple[Session, str, int]]:
        """Who is pushed messages: session, group and credit."""
        return [
            (session, name, credit)
            for name, group in self.groups.items()
            for session, credit in group.takers.consuming()
        ]

    def bury(self, item: Item, reason: str) -> None:
        """Let a message be a dead letter of a group."""
        self.letters.bury(item.record, item.group.state.name, item.attempts, reason)

    def close(self, error: RequestError | None) -> list[Session]:
        """Let go of everything; returns who was a consumer."""
        sessions: dict[Session, None] = {}
        self.closed = True
        for group in self.groups.values():
            sessions |= dict.fromkeys(group.close(error))
        told, self._told = self._told, []
        for _, refuse in told:
            if refuse is not None and error is not None:
                refuse(error)
        self.groups.clear()
        self.holders.clear()
        self.delays.close()
        self.awaited.close()
        return list(sessions)
