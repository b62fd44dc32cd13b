"""Consumers of a queue's group: what they wait for, and what they have been lent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from chappe.hub.deadline import Deadlines
from chappe.queues.record import Stored

if TYPE_CHECKING:
    from chappe.hub.session import Session
    from chappe.queues.group import Group


class Item:
    """A message in the hands of a group: with a consumer until a deadline, or waiting for another
    try, or for the one before it of the same key."""

    __slots__ = ("attempts", "consumer", "deadline", "group", "key", "loan", "record")

    def __init__(self, group: Group, record: Stored, attempts: int, key: object) -> None:
        self.group = group
        self.record = record
        # How often it was handed out, or may have been.
        self.attempts = attempts
        # What has to wait for it; None: nothing.
        self.key = key
        self.consumer: Consumer | None = None
        # While it is with a consumer: until when, together with others.
        self.loan: Loan | None = None
        # While it waits for another try: when that is.
        self.deadline: list[Any] | None = None

    def __lt__(self, other: Item) -> bool:
        mine, its = self.record, other.record
        return (mine.seq, mine.lane) < (its.seq, its.lane)

    def lapse(self, now: float) -> None:
        """It has waited long enough for another try."""
        self.deadline = None
        self.group.retries.try_again(self)


class Loan:
    """Messages that a consumer was handed at once: they have one deadline."""

    __slots__ = ("_deadlines", "_entry", "items")

    def __init__(self, deadlines: Deadlines, when: float, items: Iterable[Item]) -> None:
        self._deadlines = deadlines
        # Those that are with the consumer still.
        self.items = dict.fromkeys(items)
        self._entry = deadlines.add(when, self)
        for item in self.items:
            item.loan = self

    def end(self, item: Item) -> None:
        """A message is with the consumer no more."""
        item.loan = None
        del self.items[item]
        if not self.items:
            self._deadlines.cancel(self._entry)

    def lapse(self, now: float) -> None:
        """What was not acknowledged goes to the next: one by one, as deadlines are counted."""
        item = next(iter(self.items))
        if len(self.items) > 1:
            self._entry = self._deadlines.add(now, self)
        item.group.give_back(item, now, reason="not acknowledged in time")


class Fetching:
    """A fetch that waits in line."""

    __slots__ = ("consumer", "deadline", "got", "group", "request", "wanted")

    def __init__(self, group: Group, consumer: Consumer, request: int | None, n: int) -> None:
        self.group = group
        self.consumer = consumer
        self.request = request
        self.wanted = n
        self.got = 0
        self.deadline: list[Any] | None = None

    def lapse(self, now: float) -> None:
        """Nothing came in time."""
        self.deadline = None
        self.group.lending.end_fetch(self, now)


class Consumer:
    """What one session has to do with one group.

    `fetching` is how many messages its waiting fetches still want; with a `credit` it is pushed
    messages until it has so many.
    """

    __slots__ = ("credit", "fetches", "fetching", "group", "session", "stalled", "unacked")

    def __init__(self, group: Group, session: Session) -> None:
        self.group = group
        self.session = session
        self.unacked: dict[int, Item] = {}
        self.fetches: dict[Fetching, None] = {}
        self.fetching = 0
        self.credit = 0
        self.stalled: list[Any] | None = None

    @property
    def committed(self) -> int:
        """How many messages it has, or has asked for."""
        return len(self.unacked) + self.fetching

    @property
    def wants(self) -> bool:
        """Whether it is to be pushed a message."""
        return self.credit > self.committed and self.stalled is None

    def lapse(self, now: float) -> None:
        """It has been passed over for long enough."""
        self.stalled = None
        self.group.resume(self, now)


class Loans:
    """What all queues of a node know together: who was lent which message, what the volatile ones
    hold, and when what is over."""

    __slots__ = ("bytes_held", "deadlines", "lent")

    def __init__(self) -> None:
        self.deadlines = Deadlines()
        # By session and id: each group lends the same message once more.
        self.lent: dict[tuple[Session, int], Item] = {}
        self.bytes_held = 0
