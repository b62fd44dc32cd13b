"""What really happens in simulated rooms: who is in them, what is published, and who gets it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from chappe.message import Message
from chappe.simulation import SimulatedLoop, Trace

# The app and the name of a room.
Key = tuple[str, str]
# The broker's node, the proxy and the broker that a copy came by.
Way = tuple[str, int, int]
NOWHERE: Way = ("", 0, 0)


class Publication(NamedTuple):
    """A message that a proxy was found for."""

    id: int
    app: str
    room: str
    # One life of a node.
    publisher: str
    reliable: bool
    at: float


class Receipt(NamedTuple):
    """A message that a gateway handed to the members of a room."""

    id: int
    app: str
    to: str
    at: float
    way: Way
    # Who was in that room then, by their numbers on this gateway.
    clients: tuple[int, ...]


class Crowd:
    """The clients of one life of a gateway: its audience."""

    def __init__(self, truth: Truth, name: str) -> None:
        self.name = name
        self.rooms: dict[Key, dict[int, float]] = {}
        self.known: dict[Key, float] = {}
        self.receipts: list[Receipt] = []
        # What was handed over although nobody was there.
        self.strays: list[Receipt] = []
        self.way: Way = NOWHERE
        # How often a broker sent each normal message here.
        self.copies: Counter[int] = Counter()
        self._truth = truth

    def join(self, client: int, key: Key) -> None:
        """A client comes to a room."""
        self.rooms.setdefault(key, {})[client] = self._truth.time()

    def leave(self, client: int, key: Key) -> None:
        """A client goes."""
        del self.rooms[key][client]
        if not self.rooms[key]:
            del self.rooms[key]
            self.known.pop(key, None)

    def confirmed(self, app: str, room: str) -> None:
        """All brokers know of a room here, says the gateway."""
        if (app, room) in self.rooms:
            self.known.setdefault((app, room), self._truth.time())

    def count(self, app: str, room: str) -> int:
        return len(self.rooms.get((app, room), ()))

    def who(self, app: str, room: str, limit: int) -> list[str]:
        return [f"user:{client}" for client in self.rooms.get((app, room), ())][:limit]

    def deliver(self, app: str, message: Message, came_from: str) -> None:
        members = tuple(self.rooms.get((app, message.to.removeprefix("room:")), ()))
        now = self._truth.time()
        receipt = Receipt(message.id, app, message.to, now, self.way, members)
        (self.receipts if members else self.strays).append(receipt)
        self._truth.trace.record("deliver", to=self.name, id=message.id)


class Truth:
    """What is known of all lives of all nodes together."""

    def __init__(self, loop: SimulatedLoop, trace: Trace) -> None:
        self.time: Callable[[], float] = loop.time
        self.trace = trace
        self.published: dict[int, Publication] = {}
        self.refused = 0
        self.crowds: list[Crowd] = []

    def publish(self, publication: Publication) -> None:
        """A publisher has taken a message."""
        self.published[publication.id] = publication
        self.trace.record("publish", id=publication.id, by=publication.publisher)
