"""A session: one connection of an endpoint, with its outbox."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from chappe.wire.encoding import Encoding

if TYPE_CHECKING:
    from chappe.hub.allowance import Allowances
    from chappe.hub.app import App
    from chappe.hub.grant import Grant


class Sink(Protocol):
    """The edge's end of a session: where its bytes go."""

    def write(self, data: bytes) -> None:
        """Hand bytes to the transport; called at most once per tick."""
        ...

    def ping(self) -> None:
        """Ask the peer for a sign of life, in the edge's own way."""
        ...

    def close(self, code: int, reason: str) -> None:
        """Say goodbye with a code, after what was written, and close."""
        ...

    def abort(self) -> None:
        """Drop the connection and what it still buffers."""
        ...


class Session:
    """One connection. Its fields are plain because every delivery touches them.

    `outbox` is what this tick brought. While the transport is paused, or nobody polls, the outbox
    moves to `backlog` at the end of each tick, and policies act on it there.
    """

    __slots__ = (
        "address",
        "allowances",
        "app",
        "backlog",
        "backlog_bytes",
        "beats_max",
        "beats_missed",
        "closed",
        "droppable_bytes",
        "dropped",
        "edge",
        "encoding",
        "grant",
        "handlers",
        "id",
        "malformed",
        "opened",
        "outbox",
        "paused",
        "peer",
        "promised_bytes",
        "rooms",
        "sink",
        "topics",
        "write",
    )

    app: App
    grant: Grant

    def __init__(self, id: str, edge: str, encoding: Encoding, sink: Sink, peer: str) -> None:
        self.id = id
        self.edge = edge
        self.encoding = encoding
        self.sink = sink
        self.write = sink.write
        self.peer = peer
        self.address = ""
        self.handlers: Mapping[type, Callable[[Session, Any], None]] = {}
        self.outbox: list[bytes] = []
        self.backlog: list[bytes] | None = None
        self.backlog_bytes = 0
        self.droppable_bytes = 0
        self.dropped = 0
        self.paused = False
        self.promised_bytes = 0
        self.closed = False
        self.beats_missed = 0
        self.beats_max = 0
        self.malformed = 0
        # When it was admitted, as the recorder tells the time.
        self.opened = 0
        # Each topic with the identities, the user's own and its avatars', that subscribed to it.
        self.topics: dict[str, tuple[str, ...]] | None = None
        # Each room it is in, or is about to be.
        self.rooms: Collection[str] = ()
        self.allowances: Allowances | None = None
