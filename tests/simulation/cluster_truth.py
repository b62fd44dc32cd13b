"""What really happened in a simulated cluster: told by its nodes, checked against by invariants."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from chappe.edge.tcp import TcpConnection
from chappe.endpoints.presence import Transition
from chappe.events.counting import CountingRecorder
from chappe.events.recorder import Queued
from chappe.message import Message
from chappe.simulation import Trace
from chappe.wire import packed
from chappe.wire.ops import PACKED, Delivery

if TYPE_CHECKING:
    from chappe.hub.session import Session
    from tests.simulation.cluster_node import SimulatedNode

APP = "default"
_PACKED_DELIVERY = PACKED[Delivery]


@dataclass(slots=True)
class Life:
    """A session, as its node tells it; one that crashed with its node ended then."""

    address: str
    node: str
    opened: float
    closed: float | None = None


@dataclass(slots=True)
class Taking:
    """A message was put into the outboxes of these sessions."""

    at: float
    node: str
    user: str
    sessions: tuple[str, ...]


@dataclass(slots=True)
class Writing:
    """A message was written to a session."""

    at: float
    message: int
    to: str
    offset: int


@dataclass(slots=True)
class Telling:
    """A node told an app that a user is gone, or came."""

    at: float
    node: str
    transition: Transition


@dataclass
class Truth:
    """Everything that the nodes of a cluster did, whoever heard of it."""

    loop: asyncio.AbstractEventLoop
    trace: Trace
    lives: dict[str, Life] = field(default_factory=dict)
    taken: dict[int, list[Taking]] = field(default_factory=lambda: defaultdict(list))
    written: dict[str, list[Writing]] = field(default_factory=lambda: defaultdict(list))
    tellings: list[Telling] = field(default_factory=list)
    # By the payload of messages, which no two have in common.
    words: dict[bytes, int] = field(default_factory=dict)
    # When a queue lent a message to a consumer, which may have got it much later.
    lent: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    # When a queue's record changed, on any node.
    moves: list[float] = field(default_factory=list)
    # Messages of queues that were on their way from one node to another, and those that arrived.
    handed: set[int] = field(default_factory=set)
    taken_on: set[int] = field(default_factory=set)
    # When a link went down, and between whom.
    downs: list[tuple[float, str, str]] = field(default_factory=list)

    def crashed(self, node: str) -> None:
        """All sessions of a node ended without its saying so."""
        for life in self.lives.values():
            if life.node == node and life.closed is None:
                life.closed = self.loop.time()

    def wrote(self, session: Session, data: bytes) -> None:
        now = self.loop.time()
        for array in packed.Splitter(1 << 30).feed(data):
            for op in packed.read_hub_ops(array):
                if isinstance(op, _PACKED_DELIVERY):
                    one: Any = op
                    self.written[session.id].append(
                        Writing(now, int(one.message), one.to, one.offset)
                    )


class NodeRecorder(CountingRecorder):
    """One run of a node, telling the truth and the trace."""

    def __init__(self, truth: Truth, node: SimulatedNode) -> None:
        super().__init__()
        self._truth = truth
        self._node = node

    def _note(self, kind: str, **details: Any) -> None:
        self._truth.trace.record(kind, node=self._node.name, **details)

    def session_opened(self, app: str, address: str, session: str, edge: str) -> None:
        self._note("opened", address=address, session=session)
        self._truth.lives[session] = Life(address, self._node.name, self._truth.loop.time())

    def session_closed(
        self, app: str, address: str, session: str, edge: str, code: int, opened: int
    ) -> None:
        self._note("closed", address=address, session=session, code=int(code))
        self._truth.lives[session].closed = self._truth.loop.time()

    def sent(self, app: str, messages: Sequence[Message], *more: object) -> None:
        now = self._truth.loop.time()
        for message in messages:
            user = self._node.user_of(message.to)
            sessions = tuple(session.id for session in self._node.sessions_of(user))
            self._truth.words[message.payload] = message.id
            self._truth.taken[message.id].append(Taking(now, self._node.name, user, sessions))
        self._note("sent", ids=repr([message.id for message in messages]))

    def queued(self, app: str, queue: str, messages: Sequence[Queued]) -> None:
        self._note("queued", ids=repr([message.id for message in messages]))

    def published(
        self, app: str, messages: Sequence[Message], receivers: int, *more: object
    ) -> None:
        self._note("published", ids=repr([m.id for m in messages]), receivers=receivers)

    def refused(self, app: str, error: str) -> None:
        self._note("refused", error=str(error))

    def dropped(self, app: str, reason: str, messages: int, *more: object) -> None:
        self._note("dropped", reason=reason, messages=messages)

    def user_gone(self, app: str, address: str) -> None:
        self._note("gone", address=address)

    def user_came(self, app: str, address: str) -> None:
        self._note("came", address=address)

    def hooked(self, app: str, outcome: str) -> None:
        self._note("hooked", outcome=outcome)

    def tell(self, transition: Transition) -> None:
        """What an app's own server would be told."""
        now = self._truth.loop.time()
        self._truth.tellings.append(Telling(now, self._node.name, transition))


class TappedConnection(TcpConnection):
    """An edge's connection whose writes the truth knows."""

    def __init__(self, node: SimulatedNode, truth: Truth) -> None:
        super().__init__(node.hub)
        self._truth = truth

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        session = getattr(self, "_session", None)
        if session is None:
            return
        write = session.write

        def tap(data: bytes) -> None:
            self._truth.wrote(session, data)
            write(data)

        session.write = tap
