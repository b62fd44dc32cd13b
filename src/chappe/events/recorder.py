"""What happens to messages and sessions, told to whoever keeps it.

The hub tells a recorder once per batch, never once per delivery: a fan-out is one call with counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from chappe.message import Message


class Queued(Protocol):
    """A message that a queue keeps."""

    id: int
    sender: str
    ts_ms: int
    payload: bytes


class Recorder(Protocol):
    """Keeps the events of a node."""

    def session_opened(self, app: str, address: str, session: str, edge: str) -> None:
        """An endpoint said hello."""
        ...

    def session_closed(self, app: str, address: str, session: str, edge: str, code: int) -> None:
        """An endpoint's session ended."""
        ...

    def sent(self, app: str, messages: Sequence[Message]) -> None:
        """Messages to single receivers were each taken into at least one outbox."""
        ...

    def queued(self, app: str, queue: str, messages: Sequence[Queued]) -> None:
        """Messages were taken for a queue; they are in it once they are durable."""
        ...

    def published(self, app: str, messages: Sequence[Message], receivers: int) -> None:
        """Messages to one topic were each put into the outboxes of that many sessions."""
        ...

    def refused(self, app: str, error: str) -> None:
        """A request was answered with an error, or would have been, had it an id."""
        ...

    def dropped(self, app: str, reason: str, messages: int) -> None:
        """Messages were lost on their way out, and why."""
        ...

    def user_gone(self, app: str, address: str) -> None:
        """A user has had no session in the cluster for longer than the grace time."""
        ...

    def user_came(self, app: str, address: str) -> None:
        """A user has a session in the cluster and had none before."""
        ...

    def hooked(self, app: str, outcome: str) -> None:
        """An app's own server was told of such a thing, or was not: what became of it."""
        ...


class CountingRecorder:
    """The default recorder: counts, for `/metrics`."""

    def __init__(self) -> None:
        self.opened: Counter[str] = Counter()
        self.closed: Counter[int] = Counter()
        # Plain numbers: these two are counted at least once per tick, the others seldom.
        self.sends = 0
        self.publishes = 0
        self.published_deliveries = 0
        self.refusals: Counter[str] = Counter()
        self.drops: Counter[str] = Counter()
        self.users: Counter[str] = Counter()
        self.hooks: Counter[str] = Counter()

    @property
    def messages(self) -> dict[str, int]:
        """How many messages were taken, by op."""
        return {"send": self.sends, "publish": self.publishes}

    @property
    def deliveries(self) -> dict[str, int]:
        """How many messages were put into outboxes, by op; a send counts once, on any device."""
        return {"send": self.sends, "publish": self.published_deliveries}

    def session_opened(self, app: str, address: str, session: str, edge: str) -> None:
        self.opened[edge] += 1

    def session_closed(self, app: str, address: str, session: str, edge: str, code: int) -> None:
        self.closed[code] += 1

    def sent(self, app: str, messages: Sequence[Message]) -> None:
        self.sends += len(messages)

    def queued(self, app: str, queue: str, messages: Sequence[Queued]) -> None:
        self.sends += len(messages)

    def published(self, app: str, messages: Sequence[Message], receivers: int) -> None:
        self.publishes += len(messages)
        self.published_deliveries += len(messages) * receivers

    def refused(self, app: str, error: str) -> None:
        self.refusals[error] += 1

    def dropped(self, app: str, reason: str, messages: int) -> None:
        self.drops[reason] += messages

    def user_gone(self, app: str, address: str) -> None:
        self.users["gone"] += 1

    def user_came(self, app: str, address: str) -> None:
        self.users["came"] += 1

    def hooked(self, app: str, outcome: str) -> None:
        self.hooks[outcome] += 1
