"""Links: one authenticated WebSocket connection to another node, dialled or accepted (H6).

Both ends are this code, so a link is stricter than an edge: every message is one whole binary
frame, and whatever else comes ends it. picows reads the frames of one read, and only then they are
carried out: a mistake of ours reaches the event loop and not picows, which would swallow it.

`connecting -> shaking -> up -> down`. The dialler is up when the acceptor has proven itself; the
acceptor when the dialler's first frame has come, so it is the dialler who decides which of two
links stays. Until then a connection is a stranger's, and may send a few kilobytes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from enum import Enum
from random import Random
from typing import Any, Protocol

import msgspec
from picows import WSFrame, WSListener, WSMsgType, WSTransport

from chappe.client.websocket import masked_frame, masked_head
from chappe.clock import Clock
from chappe.cluster.options import LinkOptions
from chappe.edge.origin import LOOPBACK
from chappe.edge.peer import peer_of
from chappe.errors import CloseCode, RemoteProtocolError
from chappe.wire.link import (
    Accepting,
    Dialling,
    FrameKind,
    Frames,
    Refused,
    read_pong,
    write_ping,
    write_pong,
)
from chappe.wire.websocket import BINARY, CLOSE, FIN, check_close, close_reason, frame_head

# What a stranger may send before it has proven itself: an upgrade request and two messages.
_STRANGER_BYTES_MAX = 16 * 1024
# The clocks' difference is taken from the fastest of so many round trips: the others waited.
_SAMPLES = 8


class LinkState(Enum):
    """How far a link is."""

    SHAKING = "shaking"
    UP = "up"
    DOWN = "down"


class LinkKeeper(Protocol):
    """Who keeps the links: the mesh."""

    def arrived(self, link: Link) -> None:
        """Somebody has connected, and has yet to prove who it is."""
        ...

    def judge(self, link: Link) -> None:
        """The peer is proven; raises Refused when this link may not come up all the same."""
        ...

    def came_up(self, link: Link) -> None:
        """The link is up."""
        ...

    def went_down(self, link: Link, reason: str, detail: str) -> None:
        """The link is down, once, after it was up."""
        ...

    def failed(self, link: Link, refused: Refused) -> None:
        """The link ended, once, before it was up."""
        ...

    def received(self, link: Link, bodies: list[bytes]) -> None:
        """Bodies of one read."""
        ...

    def beat(self, link: Link, ahead_us: int, round_trip_us: int) -> None:
        """A beat came back: by how much the peer's clock is ahead, and how long it took."""
        ...

    def writable(self, link: Link) -> None:
        """The transport takes more."""
        ...


class LinkSetting(msgspec.Struct, frozen=True, kw_only=True):
    """What all links of a mesh share."""

    loop: asyncio.AbstractEventLoop
    clock: Clock
    keeper: LinkKeeper
    options: LinkOptions
    # Masks of what a dialler sends: RFC 6455 wants them.
    rng: Random


class Link(WSListener):
    """One connection to another node."""

    def __init__(self, setting: LinkSetting, handshake: Dialling | Accepting) -> None:
        options = setting.options
        self._loop = setting.loop
        self._clock = setting.clock
        self._keeper = setting.keeper
        self._options = options
        self._random = setting.rng.getrandbits
        self.handshake = handshake
        self.dialled = isinstance(handshake, Dialling)
        self.state = LinkState.SHAKING
        # What the handshake tells of the peer.
        self.name = ""
        self.incarnation = 0
        self.version = 0
        self.attempt = 0
        self.address = ""
        self.paused = False
        self.up_since: float | None = None
        self.round_trip_s: float | None = None
        self.bytes_in = self.bytes_out = self.frames_in = self.frames_out = 0
        # Why it never came up, or None: for whoever dialled.
        self.settled: asyncio.Future[Refused | None] = self._loop.create_future()
        # Resolved when the connection is gone.
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self._transport: Any = None
        self._private = False
        self._frames = Frames(options.frame_bytes_max)
        self._unread: list[bytes] = []
        self._bodies: list[bytes] = []
        self._broken: tuple[str, str] | None = None
        self._heard_at = self._loop.time()
        self._ping_at = 0.0
        self._pinged_at = 0.0
        self._samples: deque[tuple[float, float]] = deque(maxlen=_SAMPLES)
        self._timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        way = "to" if self.dialled else "from"
        return f"<Link {way} {self.name or '?'}/{self.incarnation} {self.state.value}>"

    @property
    def clock_offset_ms(self) -> float | None:
        """How far the peer's wall clock is ahead of this one's; None before the first pong."""
        return min(self._samples)[1] if self._samples else None

    @property
    def duplicates(self) -> int:
        """How many frames came again, and were ignored."""
        return self._frames.duplicates

    @property
    def body_bytes_max(self) -> int:
        """What fits into a frame."""
        return self._options.frame_bytes_max - 16

    def write(self, body: bytes) -> None:
        """Send one frame at once; nothing happens when the link is down.

        Raises ValueError for a body that does not fit into a frame.
        """
        if len(body) > self.body_bytes_max:
            raise ValueError(f"body: {len(body)} bytes do not fit into a frame")
        if self.state is LinkState.UP:
            self._write_frame(FrameKind.BODY, body)

    def reset(self, reason: str) -> None:
        """Drop the link at once: the owner is told before this returns; the mesh dials anew.

        `reason` is logged whole, and counted up to its first colon.
        """
        self.end(reason)

    def end(self, reason: str, detail: str = "", *, goodbye: bool = False) -> None:
        """Be down. With a goodbye, the peer gets what was written, and why; without, nothing."""
        if self.state is LinkState.DOWN:
            return
        was_up, self.state = self.state is LinkState.UP, LinkState.DOWN
        self._stop_timer()
        if goodbye:
            self._say_goodbye(detail or reason)
        elif self._transport is not None:
            self._transport.abort()
        if was_up:
            self._keeper.went_down(self, reason, detail)
        else:
            self._refuse(Refused(reason, detail or reason))

    def abandon(self) -> None:
        """Cut the connection, whatever becomes of the last words."""
        self.end("abandoned")
        if self._transport is not None:
            self._transport.abort()

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        if self.state is LinkState.UP:
            self._keeper.writable(self)

    def connected(self, transport: asyncio.Transport) -> None:
        """The connection is there, its WebSocket handshake not yet."""
        self._transport = transport
        self.address = peer_of(transport)
        # A mask keeps what stands between two machines from taking payloads for something else.
        # Where nothing can, its key is 0: that spares most of what writing a large frame costs.
        secure = transport.get_extra_info("sslcontext") is not None
        self._private = secure or self.address in LOOPBACK
        transport.set_write_buffer_limits(high=self._options.write_bytes_max)
        if self.state is LinkState.DOWN:
            transport.abort()
            return
        self._timer = self._loop.call_later(self._options.handshake_timeout_s, self._too_slow)
        if not self.dialled:
            self._keeper.arrived(self)

    def on_ws_connected(self, transport: WSTransport) -> None:
        if isinstance(self.handshake, Dialling):
            self._write_message(self.handshake.hello())

    def disconnected(self) -> None:
        """The connection is gone."""
        self.end("lost", "the peer hung up")
        if not self.closed.done():
            self.closed.set_result(None)

    def before_read(self, size: int) -> bool:
        """Whether bytes that have come may be looked at."""
        now = self._loop.time()
        if self.state is LinkState.UP:
            if now >= self._heard_at + self._options.silence_s:
                # This process slept, and its peer has given it up: what is left in the kernel is
                # of a link that is no more.
                self.end("silence")
        elif self.handshake.peer is None and self.bytes_in + size > _STRANGER_BYTES_MAX:
            self.end("garbage", "too much from a stranger")
        self.bytes_in += size
        self._heard_at = now
        return self.state is not LinkState.DOWN

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        """Keep a frame until the read is over."""
        if self._broken is not None or self.state is LinkState.DOWN:
            return
        kind = frame.msg_type
        if kind is WSMsgType.BINARY and frame.fin and not (frame.rsv1 or frame.rsv2 or frame.rsv3):
            if self.state is LinkState.UP:
                self._take_frame(frame.get_payload_as_memoryview())
            else:
                self._unread.append(frame.get_payload_as_bytes())
        elif kind is WSMsgType.CLOSE:
            self._broken = ("goodbye", _goodbye_of(frame.get_payload_as_bytes()))
        else:
            self._broken = ("protocol", f"a frame of kind {kind}")

    def parser_failed(self) -> None:
        """picows has met a frame that it cannot read, or that is too large."""
        if self._broken is None:
            self._broken = ("protocol", "what came is no frame, or too large a one")

    def after_read(self) -> None:
        """Carry out what one read has brought."""
        if self._unread:
            unread, self._unread = self._unread, []
            for message in unread:
                self._take_early(message)
        self._hand_over()
        if self._broken is not None:
            self.end(*self._broken)

    def _hand_over(self) -> None:
        if self._bodies:
            bodies, self._bodies = self._bodies, []
            if self.state is LinkState.UP:
                self._keeper.received(self, bodies)

    def _take_early(self, message: bytes) -> None:
        """Take a message that came before the link was up."""
        if self.state is LinkState.DOWN:
            return
        if self.state is LinkState.UP:
            self._take_frame(message)
            return
        try:
            if self.handshake.peer is None:
                self._shake(message)
            else:
                self._come_up()  # the dialler's first frame
                self._take_frame(message)
        except Refused as refused:
            self._turn_away(refused)

    def _shake(self, message: bytes) -> None:
        answer = self.handshake.take(message)
        peer = self.handshake.peer
        if peer is not None:
            self.name, self.incarnation = peer.name, peer.incarnation
            self.attempt, self.version = peer.attempt, self.handshake.version
        if answer is not None:
            self._write_message(answer)
        else:
            self._come_up()

    def _come_up(self) -> None:
        self._keeper.judge(self)
        self.state = LinkState.UP
        self._stop_timer()
        self.up_since = self._heard_at = self._loop.time()
        if not self.settled.done():
            self.settled.set_result(None)
        self._beat()
        self._keeper.came_up(self)

    def _turn_away(self, refused: Refused) -> None:
        """End a handshake; only who has proven itself is told why."""
        self.state = LinkState.DOWN
        self._stop_timer()
        if refused.proven:
            self._say_goodbye(refused.reason)
        else:
            self._transport.abort()
        self._refuse(refused)

    def _refuse(self, refused: Refused) -> None:
        if not self.settled.done():
            self.settled.set_result(refused)
        self._keeper.failed(self, refused)

    def _too_slow(self) -> None:
        self.end("timeout", "the handshake took too long")

    def _take_frame(self, frame: bytes | memoryview) -> None:
        try:
            taken = self._frames.take(frame)
            if taken is None:
                return
            kind, body = taken
            self.frames_in += 1
            if kind == FrameKind.BODY:
                self._bodies.append(body)
            elif kind == FrameKind.PING:
                pong = write_pong(body, self._clock.wall_us(), self.version)
                self._write_frame(FrameKind.PONG, pong)
            elif kind == FrameKind.PONG:
                self._take_pong(*read_pong(body, self.version))
            else:
                raise RemoteProtocolError(f"a frame of kind {kind}")
        except RemoteProtocolError as error:
            cause = "gap" if error.reason.startswith("gap") else "protocol"
            self._broken = (cause, error.reason)

    def _take_pong(self, sent_at: float, wall_us: int) -> None:
        if sent_at != self._pinged_at:
            return  # too late to tell anything
        self.round_trip_s = trip_s = max(0.0, self._loop.time() - sent_at)
        trip_us = round(trip_s * 1_000_000)
        ahead_us = wall_us - (self._clock.wall_us() - trip_us // 2)
        self._samples.append((trip_s, ahead_us / 1000))
        self._keeper.beat(self, ahead_us, trip_us)

    def _beat(self) -> None:
        now, options = self._loop.time(), self._options
        silent_at = self._heard_at + options.silence_s
        if now >= silent_at:
            self._timer = None
            self.end("silence", f"nothing came for {options.silence_s:g} s")
            return
        if now >= self._ping_at:
            self._ping_at = now + options.heartbeat_s
            self._pinged_at = now
            self._write_frame(FrameKind.PING, write_ping(now))
        self._timer = self._loop.call_at(min(self._ping_at, silent_at), self._beat)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _write_frame(self, kind: FrameKind, body: bytes) -> None:
        self.frames_out += 1
        self._write_message(self._frames.head(kind), body)

    def _write_message(self, *parts: bytes, first_byte: int = FIN | BINARY) -> None:
        size = sum(map(len, parts))
        if not self.dialled:
            data = b"".join((frame_head(first_byte, size), *parts))
        elif self._private:
            data = b"".join((masked_head(first_byte, size, 0), *parts))
        else:
            data = masked_frame(first_byte, b"".join(parts), self._random(32))
        self.bytes_out += len(data)
        self._transport.write(data)

    def _say_goodbye(self, reason: str) -> None:
        """Close after what was written, and cut off a peer that does not read it."""
        if self._transport is None or self._transport.is_closing():
            return
        code = int(CloseCode.GOING_AWAY).to_bytes(2, "big")
        self._write_message(code, close_reason(reason), first_byte=FIN | CLOSE)
        self._transport.close()
        timer = self._loop.call_later(self._options.close_timeout_s, self._transport.abort)
        self.closed.add_done_callback(lambda _: timer.cancel())


def _goodbye_of(payload: bytes) -> str:
    try:
        return check_close(payload)[1]
    except RemoteProtocolError as error:
        return error.reason
