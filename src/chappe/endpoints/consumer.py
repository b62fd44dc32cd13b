"""Consumers of a work queue: what they wait for, and what they have been lent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from chappe.endpoints.deadline import Deadlines
from chappe.message import Message

if TYPE_CHECKING:
    from chappe.endpoints.workqueue import WorkQueue
    from chappe.hub.session import Session


class Item:
    """A message in a queue, and who has it: nobody, or one consumer until a deadline."""

    __slots__ = ("attempts", "consumer", "deadline", "message", "queue", "serial")

    deadline: list[Any]

    def __init__(self, queue: WorkQueue, serial: int, message: Message) -> None:
        self.queue = queue
        self.serial = serial
        self.message = message
        self.attempts = 0
        self.consumer: Consumer | None = None

    def __lt__(self, other: Item) -> bool:
        return self.serial < other.serial

    def lapse(self, now: float) -> None:
        """It was not acknowledged in time."""
        self.queue.give_back(self, now)


class Fetching:
    """A fetch that waits in line."""

    __slots__ = ("consumer", "deadline", "got", "queue", "request", "wanted")

    def __init__(self, queue: WorkQueue, consumer: Consumer, request: int | None, n: int) -> None:
        self.queue = queue
        self.consumer = consumer
        self.request = request
        self.wanted = n
        self.got = 0
        self.deadline: list[Any] | None = None

    def lapse(self, now: float) -> None:
        """Nothing came in time."""
        self.queue.end_fetch(self, now)


class Consumer:
    """What one session has to do with one queue.

    `fetching` is how many messages its waiting fetches still want; with a `credit` it is pushed
    messages until it has so many.
    """

    __slots__ = ("credit", "fetches", "fetching", "queue", "session", "stalled", "unacked")

    def __init__(self, queue: WorkQueue, session: Session) -> None:
        self.queue = queue
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
        self.queue.resume(self, now)


class Loans:
    """What all queues of a node know together: who was lent which message, what they hold, and
    when what is over."""

    __slots__ = ("bytes_held", "deadlines", "lent")

    def __init__(self) -> None:
        self.deadlines = Deadlines()
        self.lent: dict[int, Item] = {}
        self.bytes_held = 0
