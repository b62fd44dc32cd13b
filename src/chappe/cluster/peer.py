"""A peer: another node, as long as the link to it lasts.

What a tick brings for it is gathered and written as one frame at the tick's end, so that messages
to many receivers on one node cost one write:

    forward, relay, publish -> gathered --(end of tick, link not paused)--> one frame
                                  |
                                  +--(paused)--> waits, bounded: data is refused above the bound,
                                                 control never; twice the bound resets the link

Copies that nobody waits for are left out above the bound: how many is told once there is room.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from chappe.cluster.pending import Awaited, AwaitedRun, Pending
from chappe.errors import Overload
from chappe.events.recorder import Recorder
from chappe.message import Message
from chappe.wire.node import (
    FORGET_REFUSED,
    RETURN_REFUSED,
    Forward,
    FromHome,
    Missed,
    NodeOp,
    ToHome,
    encode_node_ops,
)

if TYPE_CHECKING:
    from chappe.cluster.link import Link

# What a message, or any other op, costs on the wire beside its payload, about.
_OP_BYTES = 100
# What a page of a long story costs, about.
_PAGE_BYTES = 32 * 1024
# More is encoded at once, so that a frame stays well below its bound.
_FRAME_BYTES = 1024 * 1024
# Topics and users of which is remembered how much they missed; beyond that it is only counted.
_MISSED_MAX = 100_000


class Waker(Protocol):
    """Flushes peers at the end of a tick."""

    def wake(self, peer: Peer) -> None:
        """Something was gathered for this peer."""
        ...


class Peer:
    """Another node, with what waits to be written to it."""

    __slots__ = (
        "_bytes",
        "_bytes_max",
        "_frames",
        "_gathered",
        "_gathered_bytes",
        "_missed",
        "_number",
        "_pending_max",
        "_recorder",
        "_trickle",
        "_waker",
        "alone",
        "link",
        "name",
        "pending",
        "seq_in",
        "seq_out",
        "synced",
        "up",
        "view",
    )

    def __init__(
        self, link: Link, waker: Waker, recorder: Recorder, *, bytes_max: int, pending_max: int
    ) -> None:
        self.link = link
        self.name = link.name
        self.up = True
        # Whether its connection table is known here, and the deltas of both sides.
        self.synced = False
        # Which nodes it sees, as far as it has told.
        self.view = 0
        self.seq_in = self.seq_out = 0
        self.pending: dict[int, Awaited] = {}
        # The route of whoever is on this node only: one tuple for all of them.
        self.alone: tuple[Peer, ...] = (self,)
        self._waker = waker
        self._recorder = recorder
        self._gathered: list[NodeOp] = []
        self._gathered_bytes = 0
        # Encoded already, because there was so much of it.
        self._frames: deque[bytes] = deque()
        # All that waits, and what will be said as soon as there is room.
        self._bytes = 0
        self._trickle: deque[Iterator[NodeOp]] = deque()
        # How many messages were left out, by app and address.
        self._missed: dict[tuple[str, str], int] = {}
        self._bytes_max = bytes_max
        self._pending_max = pending_max
        self._number = 1

    def __repr__(self) -> str:
        return f"<Peer {self.name}{'' if self.up else ' (down)'}>"

    @property
    def waiting_bytes(self) -> int:
        """About how much waits to be written."""
        return self._bytes

    @property
    def full(self) -> bool:
        """Whether more waits than may: what can be left out should be."""
        return self._bytes > self._bytes_max

    def tell(self, op: NodeOp, size: int = _OP_BYTES) -> None:
        """Say something that must arrive, or the link is reset."""
        if not self._gathered:
            self._waker.wake(self)
        self._gathered.append(op)
        self._grow(size)
        if self._bytes > 2 * self._bytes_max:
            # Not from here: whoever says something must not find its peer gone when it has.
            self._waker.wake(self)

    def _grow(self, size: int) -> None:
        self._bytes += size
        self._gathered_bytes += size
        if self._gathered_bytes >= _FRAME_BYTES:
            self._encode()

    def _encode(self) -> None:
        gathered, self._gathered = self._gathered, []
        self._gathered_bytes = 0
        self._frames.append(encode_node_ops(gathered))

    def trickle(self, ops: Iterator[NodeOp]) -> None:
        """Say a long story as fast as the peer takes it, between all else."""
        self._trickle.append(ops)
        self._waker.wake(self)

    def relay(self, app: str, messages: list[Message], *, promised: bool) -> None:
        """Take a run along: copies for devices on that node, or a topic's messages from home."""
        size = sum(len(message.payload) for message in messages) + _OP_BYTES * len(messages)
        if not self.up:
            return  # a topic's may be lost; of a promise, another device has taken it
        if self.full:
            self._miss(app, messages[0].to, [message.id for message in messages])
        elif promised:
            self.tell(Forward(app, FORGET_REFUSED, messages), size)
        else:
            self.tell(FromHome(app, messages), size)

    def _miss(self, app: str, to: str, ids: list[int]) -> None:
        count = len(ids)
        self._recorder.dropped(app, "slow_link", count, to, ids)
        key = (app, to)
        if key in self._missed or len(self._missed) < _MISSED_MAX:
            self._missed[key] = self._missed.get(key, 0) + count

    def forward(self, app: str, message: Message, pending: Pending) -> None:
        """Send a message to a single receiver there; raises Overload when the link is full."""
        number = self._admit(pending)
        last = self._gathered[-1] if self._gathered else None
        if last.__class__ is Forward and last.app == app and last.first > 0:
            last.messages.append(message)
            self._grow(len(message.payload) + _OP_BYTES)
        else:
            self.tell(Forward(app, number, [message]), len(message.payload) + _OP_BYTES)

    def forward_all(self, app: str, messages: list[Message], first: int = RETURN_REFUSED) -> None:
        """Send messages for which there was room to a single receiver there; those that are not
        numbered are returned if they are refused."""
        size = sum([len(message.payload) for message in messages]) + _OP_BYTES * len(messages)
        last = self._gathered[-1] if self._gathered else None
        if (
            last.__class__ is Forward
            and last.app == app
            and (last.first > 0) is (first > 0)
            and last.first != FORGET_REFUSED
        ):
            last.messages += messages
            self._grow(size)
        else:
            self.tell(Forward(app, first, messages), size)

    def await_all(self, pending: AwaitedRun, count: int) -> int:
        """Number a run of so many messages, whose verdicts are awaited from now on."""
        first = pending.first = self._numbers(count)
        if count == 1:
            self.pending[first] = pending
        else:
            self.pending.update(dict.fromkeys(range(first, first + count), pending))
        return first

    def _numbers(self, count: int) -> int:
        """The first of so many numbers that nobody else gets."""
        first = self._number
        self._number = first + count
        return first

    def publish(self, app: str, message: Message, pending: Pending, *, forwarded: bool) -> None:
        """Send a message to a topic whose home is there; raises Overload when the link is full."""
        number = self._admit(pending)
        last = self._gathered[-1] if self._gathered else None
        if (
            isinstance(last, ToHome)
            and last.app == app
            and last.forwarded is forwarded
            and not last.silent
        ):
            last.messages.append(message)
            self._grow(len(message.payload) + _OP_BYTES)
        else:
            op = ToHome(app, number, [message], forwarded)
            self.tell(op, len(message.payload) + _OP_BYTES)

    def publish_all(self, app: str, messages: list[Message], run: AwaitedRun | None) -> None:
        """Send a run to a topic whose home is there; without anybody who awaits its verdicts,
        none but refusals come back."""
        count, silent = len(messages), run is None
        # Silent ones take numbers, too: a home that answers all the same answers nobody else.
        first = self._numbers(count) if run is None else self.await_all(run, count)
        size = sum([len(message.payload) for message in messages]) + _OP_BYTES * count
        last = self._gathered[-1] if self._gathered else None
        if (
            isinstance(last, ToHome)
            and last.app == app
            and not last.forwarded
            and last.silent is silent
        ):
            last.messages += messages
            self._grow(size)
        else:
            self.tell(ToHome(app, first, messages, silent=silent), size)

    def check_room(self) -> None:
        """Refuse more messages while the link is gone or full; raises Overload."""
        if not self.up:
            raise Overload("the link to the receiver's node has just gone")
        if self.full:
            raise Overload("the link to the receiver's node is full")
        if len(self.pending) >= self._pending_max:
            raise Overload("too many verdicts of the receiver's node are awaited")

    def _admit(self, pending: Pending) -> int:
        self.check_room()
        number = self._numbers(1)
        self.pending[number] = pending
        return number

    def flush(self) -> None:
        """Write what was gathered, unless the link is gone, or paused: if too much waits then, it
        is reset."""
        if not self.up:
            return
        if self.link.paused:
            if self._bytes > 2 * self._bytes_max:
                self.link.reset("too much waits for a peer that does not read")
            return
        if self._trickle:
            self._tell_on()
        if self._missed:
            self._tell_missed()
        if self._gathered:
            self._encode()
        frames, self._frames, self._bytes = self._frames, deque(), 0
        for frame in frames:
            self.link.write(frame)
        if self._trickle and not self.link.paused:
            self._waker.wake(self)

    def _tell_on(self) -> None:
        """Go on with a long story. It comes before what was gathered: whoever is asked for
        something of a queue must have been told of the queue."""
        gathered, self._gathered = self._gathered, []
        while self._trickle and self._bytes < self._bytes_max // 4:
            for op in self._trickle[0]:
                self._gathered.append(op)
                self._grow(_PAGE_BYTES)
                break
            else:
                self._trickle.popleft()
        self._gathered += gathered

    def _tell_missed(self) -> None:
        missed, self._missed = self._missed, {}
        for (app, to), count in missed.items():
            self._gathered.append(Missed(app, to, count))
            self._grow(_OP_BYTES + len(to))

    def unsent(self) -> list[NodeOp]:
        """What was gathered and never handed to the link; it is gone from here."""
        gathered, self._gathered = self._gathered, []
        return gathered
