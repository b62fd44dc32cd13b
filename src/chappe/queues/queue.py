"""One queue: its lanes, its groups, and the commits that make what they do durable.

    send, ack, ...  --> records, applied to the state in order --+
    end of the turn --> one commit of them all ------------------+--> storage
    committed       --> replies, deliveries

All that happens in one turn of the loop becomes durable together: a commit costs the same for one
record and for a thousand. Whatever is visible outside happens after that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING
from zlib import crc32

import structlog

from chappe.errors import Overload, RequestError, StorageError
from chappe.queues.awaited import Awaited
from chappe.queues.commit import RECORD_BYTES, Commit, Refused, Told
from chappe.queues.consumer import Item
from chappe.queues.delays import Delays
from chappe.queues.group import Group
from chappe.queues.keeper import Keeper, Outlet
from chappe.queues.letters import Letters
from chappe.queues.members import Members
from chappe.queues.record import DELAY_LANE, Record, Stored
from chappe.queues.room import Room
from chappe.queues.state import QueueState
from chappe.queues.storage import Storage

if TYPE_CHECKING:
    from chappe.hub.session import Session

log = structlog.get_logger()

# Messages that are let go of in one turn.
_FREED_MAX = 1_000


class Queue:
    """A queue, as long as it lives on this node."""

    def __init__(self, state: QueueState, storage: Storage, keeper: Keeper, outlet: Outlet) -> None:
        self.state = state
        self.storage = storage
        self.keeper = keeper
        self.outlet = outlet
        self.recorder = outlet.recorder
        self.limits = keeper.limits
        self.loans = keeper.loans
        self.address = state.address
        self.closed = False
        # The last message of each lane that is durable.
        self.committed = dict(state.heads)
        self.groups: dict[str, Group] = {}
        self.members = Members(self)
        self._room = Room(self)
        # What this turn has brought so far.
        self._commit = Commit(self)
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
        self._commit.records.append(record)
        if type(record) is Stored:
            self._commit.stored.append(record)
        self.keeper.wake(self)

    def after(self, told: Told, refused: Refused | None = None) -> None:
        """Call back once all that was added so far is durable, or has failed to be."""
        self._commit.told.append((told, refused))
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
        commit, touched, self._touched = self._commit, self._touched, {}
        if commit.gather(touched):
            self._commit = Commit(self)
            commit.begin()

    def free(self, lane: int, seqs: Iterable[int]) -> None:
        """Let the storage forget those of them that every group is done with, once that is durable;
        while there is no group, somebody may come for them.

        They may be millions: so many in each turn of the loop.
        """
        left = iter(seqs)

        def some() -> None:
            readers = list(self.state.readers())
            here = list(islice(left, _FREED_MAX))
            if self.closed or not readers or not here:
                return
            gone = [seq for seq in here if all(one.at(lane).is_done(seq) for one in readers)]
            if gone:
                self.storage.discard(self.state, lane, gone)
            self.keeper.soon(some)

        self.after(some)

    def make_room(self, size: int) -> None:
        """A message of so many bytes is about to be stored; raises Overload when there is no room
        for it, BadRequest if there never is."""
        self._room.use_one(size)
        self.check_storage(size)

    def check_storage(self, size: int) -> None:
        """Raise Overload when the storage has no room for a message of so many bytes, besides what
        this turn has brought."""
        self.storage.check(self.keeper.adding + size + RECORD_BYTES)

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
        self.make_room(len(message.payload) + message.extra)
        if message.consumers is None and self.state.options.consumers is not None:
            message.consumers = self.state.options.consumers
        if message.due_ms is not None:
            self.delays.check_room()
            self.place(message, DELAY_LANE)
        else:
            self.deliver(message)
        self._commit.told.append((partial(told, message.id), refused))

    def send_all(self, messages: list[Stored], size: int, told: Told, refused: Refused) -> bool:
        """Store messages that have nothing to be known by, of so many bytes together; tells once
        they are durable. False, and nothing happened, if each has to be looked at."""
        state, commit, count = self.state, self._commit, len(messages)
        if state.options.consumers is not None or not self._room.has(count, size):
            return False
        try:
            self.storage.check(self.keeper.adding + size + count * RECORD_BYTES)
        except Overload:
            return False
        if len(state.lanes) > 1:
            for message in messages:
                self.place(message, self._choose(message.key))
        else:
            state.place(messages, state.lanes[0], self.limits)
            commit.add(messages, size)
        self._room.use(count, size)
        commit.told.append((told, refused))
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
        self._commit.add((message,), len(message.payload) + message.extra)
        self.keeper.wake(self)

    def redefined(self) -> None:
        """The queue has other options, or more lanes."""
        self._room.look_again()
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

    def bury(self, item: Item, reason: str) -> None:
        """Let a message be a dead letter of a group."""
        self.letters.bury(item.record, item.group.state.name, item.attempts, reason)

    def close(self, error: RequestError | None) -> list[Session]:
        """Let go of everything; returns who was a consumer."""
        sessions: dict[Session, None] = {}
        self.closed = True
        for group in self.groups.values():
            sessions |= dict.fromkeys(group.close(error))
        commit, self._commit = self._commit, Commit(self)
        commit.let_go()
        if error is not None:
            commit.refuse(error)
        self.groups.clear()
        self.members.holders.clear()
        self.delays.close()
        self.awaited.close()
        return list(sessions)
