"""A device's session: as few bytes as it can be, since most of them only wait (P13).

There is no timer, task or cipher of its own. What only busy sessions have is None until they have
it. Numbers that many have in common, such as the second they were heard in, are one object.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

from chappe.wire.push import FRAME_BYTES_MAX, Splitter

if TYPE_CHECKING:
    from chappe.push.comet.outbox import Item
    from chappe.push.comet.parcel import Flight
    from chappe.push.comet.progress import Progress
    from chappe.wire.push import Command
    from chappe.wire.pushcipher import CometAgreement, Sealing

# What a stranger's frame may hold: an id, a token or a key, and a little more.
STRANGER_BYTES_MAX = 1024


class State(IntEnum):
    """How far a session has got (P3)."""

    # Nothing was said.
    NEW = 0
    # Its token is being looked up.
    CHECKING = 1
    # It has the comet's part of the key, and is to say its own.
    OFFERED = 2
    # It has a key; its route is being written.
    JOINING = 3
    # It is told ok, and has not asked for its messages.
    READY = 4
    # It gets messages as they come.
    LIVE = 5
    CLOSED = 6


class Sink(Protocol):
    """The edge's end of a session."""

    def write(self, data: bytes) -> None:
        """Send bytes."""
        ...

    def close(self) -> None:
        """End the connection when all that was written is sent."""
        ...

    def abort(self) -> None:
        """End the connection at once."""
        ...


class Malformed:
    """A frame that is no command, in its place among others."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason


class DeviceSession:
    """One connection of a device."""

    __slots__ = (
        "app",
        "asked",
        "behind",
        "busy",
        "client",
        "digest",
        "done",
        "done_seen",
        "due",
        "expires_ms",
        "flights",
        "heard",
        "key",
        "login",
        "outbox",
        "outbox_bytes",
        "paused",
        "sink",
        "splitter",
        "state",
        "topics",
    )

    def __init__(self, sink: Sink, now: int) -> None:
        self.sink = sink
        # Of a frame that is not whole yet.
        self.splitter: Splitter | None = None
        self.state = State.NEW
        self.app = ""
        self.client = ""
        # Of the token that it came with, and until when that is good.
        self.digest = b""
        self.expires_ms = 0
        # Larger than that of the client's login before.
        self.login = 0
        self.key: CometAgreement | Sealing | None = None
        # In seconds of the wheel: when it was heard of, when it is looked at next.
        self.heard = now
        self.due = 0
        self.outbox: list[Item] | None = None
        self.outbox_bytes = 0
        self.paused = False
        # A command is being carried out; those that come meanwhile wait.
        self.busy = False
        self.asked: deque[Command | Malformed] | None = None
        # More waits than it could be handed: it is looked up when there is room.
        self.behind = False
        self.topics: dict[str, Progress] | None = None
        # What it was handed and did not acknowledge, the oldest first.
        self.flights: dict[str, Flight] | None = None
        # What it acknowledged lately, and how much of it there was when it was last looked at.
        self.done: dict[str, None] | None = None
        self.done_seen = 0

    @property
    def closed(self) -> bool:
        """Whether it is over."""
        return self.state is State.CLOSED

    @property
    def known(self) -> bool:
        """Whether it has a client and a key."""
        return State.JOINING <= self.state <= State.LIVE

    def has_had(self, note_id: str) -> bool:
        """Whether it was handed a note."""
        return (self.flights is not None and note_id in self.flights) or (
            self.done is not None and note_id in self.done
        )

    def split(self, data: bytes) -> Iterator[bytes]:
        """Yield each whole frame; raises RemoteProtocolError for a length that is none."""
        splitter = self.splitter
        if splitter is None:
            most = FRAME_BYTES_MAX if self.known else STRANGER_BYTES_MAX
            self.splitter = splitter = Splitter(most)
        yield from splitter.feed(data)
        if not splitter.partial:
            self.splitter = None

    def acknowledge(self, note_id: str, done_max: int) -> Flight | None:
        """Note that a note arrived; how it was handed to this session, if it was."""
        flight = None
        if self.flights is not None:
            flight = self.flights.pop(note_id, None)
            if not self.flights:
                self.flights = None
        if flight is not None and self.topics and flight.brief.topic in self.topics:
            # How far it is in the topic is remembered, and says as much.
            return flight
        if self.done is None:
            self.done = {}
        self.done[note_id] = None
        if len(self.done) > done_max:
            del self.done[next(iter(self.done))]
        return flight

    def forget_done(self) -> None:
        """Let go of what was acknowledged before the look before: the store knows of it by now."""
        if self.done is None:
            return
        for note_id in list(self.done)[: self.done_seen]:
            del self.done[note_id]
        self.done_seen = len(self.done)
        if not self.done:
            self.done = None

    def let_go(self) -> None:
        """Keep nothing that a closed session does not need."""
        self.state = State.CLOSED
        self.key = self.outbox = self.asked = self.done = self.splitter = None
        self.outbox_bytes = self.done_seen = 0
