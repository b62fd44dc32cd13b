"""Outboxes: one write per session per tick, and what happens to those who read too slowly.

What a tick brings lies in a session's `outbox` and is written at its end, joined. A session whose
transport is paused (or that nobody polls) gets nothing written: its outbox moves to its `backlog`,
where it waits, bounded, for the transport to resume:

    deliver -> outbox --(end of tick, not paused)------------------> transport
                 |                                                      ^
                 +--(end of tick, paused)--> backlog --(resumed)--------+
                                               |
                                               +--(above the bound)--> policy

What came from a topic may be dropped there, oldest or newest first; what was promised to a single
receiver may not. Bounds are looked at once per tick, not once per message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from chappe.errors import CloseCode
from chappe.events.recorder import Recorder
from chappe.hub.options import HubOptions
from chappe.message import Message
from chappe.wire.encoding import Encoding
from chappe.wire.ops import Dropped

if TYPE_CHECKING:
    from chappe.hub.session import Session

# As much as a transport takes before it pauses: what lies in a transport is beyond every policy.
RELEASE_BYTES = 64 * 1024
# Sessions written in one turn of the loop: enough that the turn itself costs little beside them.
FLUSH_SESSIONS = 64


class TopicFrames(bytes):
    """The frames of messages to a topic, joined once and shared by every receiver; a policy may
    drop them, each message on its own."""

    _messages: list[Message]
    _encoding: Encoding
    _apart: list[TopicFrames] | None = None
    # Of a frame on its own, the message's.
    id: int

    @classmethod
    def of(cls, messages: list[Message], encoding: Encoding) -> TopicFrames:
        """Encode a run of messages."""
        frames = cls(encoding.messages(messages))
        frames._messages = messages
        frames._encoding = encoding
        return frames

    def apart(self) -> list[TopicFrames]:
        """Each message's frame on its own: made for the first reader that is slow, and shared."""
        if self._apart is None:
            encode = self._encoding.message
            self._apart = [TopicFrames(encode(message)) for message in self._messages]
            for frame, message in zip(self._apart, self._messages, strict=True):
                frame.id = message.id
        return self._apart


class Outboxes:
    """All outboxes of a hub.

    `dirty` holds the sessions that got something this tick; whoever appends to an empty outbox
    adds its session there.
    """

    __slots__ = ("_close", "_options", "_recorder", "_wake", "dirty", "held", "held_bytes")

    def __init__(
        self,
        options: HubOptions,
        recorder: Recorder,
        wake: Callable[[], None],
        close: Callable[[Session, CloseCode, str], None],
    ) -> None:
        self._options = options
        self._recorder = recorder
        self._wake = wake
        self._close = close
        self.dirty: deque[Session] = deque()
        self.held: dict[Session, None] = {}
        self.held_bytes = 0

    def put(self, session: Session, data: bytes) -> None:
        """Append to a session's outbox whatever its state: replies, notices, beats."""
        if session.closed:
            return
        outbox = session.outbox
        if not outbox:
            self.dirty.append(session)
            self._wake()
        outbox.append(data)

    def takes(self, session: Session) -> bool:
        """Whether a session takes promises without a question each: it reads, and this tick has
        not filled its outbox."""
        return (
            not session.paused
            and session.backlog is None
            and session.promised_bytes < self._options.outbox_bytes_max
        )

    def room(self, session: Session) -> int:
        """How many bytes a session takes before the policy acts."""
        waiting = session.backlog_bytes + sum(map(len, session.outbox))
        return max(0, self._options.outbox_bytes_max - waiting)

    def put_promised(self, session: Session, data: bytes) -> bool:
        """Append a message to a single receiver; False when there is no room for the promise."""
        if session.closed:
            return False
        if self.takes(session):
            session.promised_bytes += len(data)
            self.put(session, data)
            return True
        self._hold(session)
        bytes_max = self._options.outbox_bytes_max
        if session.backlog_bytes + len(data) > bytes_max:
            self._drop(session, bytes_max - len(data))
            if session.backlog_bytes + len(data) > bytes_max:
                return False
        self._append(session, data)
        return True

    def promise_all(self, sessions: Iterable[Session], data: bytes) -> list[Session]:
        """Append the same message to each of several receivers; those that have no room for it.

        A reader that keeps up, as most do, is asked nothing but whether it does."""
        bytes_max, size, dirty = self._options.outbox_bytes_max, len(data), self.dirty
        refused: list[Session] = []
        for session in sessions:
            if (
                session.paused
                or session.closed
                or session.backlog is not None
                or session.promised_bytes >= bytes_max
            ):
                if not self.put_promised(session, data):
                    refused.append(session)
                continue
            session.promised_bytes += size
            outbox = session.outbox
            if not outbox:
                dirty.append(session)
            outbox.append(data)
        if dirty:
            self._wake()
        return refused

    def miss(self, session: Session, count: int = 1, reason: str = "slow_device") -> None:
        """A session did not get messages that others got, for want of room: say so, at once or to
        whoever reads it again."""
        if session.closed:
            return
        self._recorder.dropped(session.app.name, reason, count, session.address)
        if session.backlog is None:
            self.put(session, session.encoding.op(Dropped(n=count)))
        else:
            session.dropped += count

    def flush(self) -> None:
        """Write what the tick brought, once per session.

        A large fan-out is written in slices, a turn of the loop each: others are not kept waiting
        for all of it, and what comes meanwhile joins the outboxes that are still to be written.
        """
        dirty = self.dirty
        bytes_max = self._options.outbox_bytes_max
        # Many sessions get the same: it is joined once, and is the same object for whoever has to
        # make something else of it.
        parts: list[bytes] = []
        joined = b""
        for _ in range(min(len(dirty), FLUSH_SESSIONS)):
            session = dirty.popleft()
            outbox = session.outbox
            if session.paused or session.backlog is not None:
                self._settle(session)
                continue
            if len(outbox) == 1:
                data = outbox[0]
            elif outbox:
                if outbox != parts:
                    parts, joined = outbox.copy(), b"".join(outbox)
                data = joined
            else:
                # Closed since, and its transport may be gone: to write, if only nothing, would
                # raise there and leave everybody behind it in the list without their bytes.
                continue
            if len(data) > bytes_max:
                self._settle(session)
                continue
            outbox.clear()
            session.promised_bytes = 0
            session.write(data)
        if dirty:
            self._wake()
        if self.held_bytes > self._options.outboxes_bytes_max:
            self._evict()

    def resume(self, session: Session) -> None:
        """The transport takes more: hand it what waited."""
        session.paused = False
        self._release(session)

    def write_now(self, session: Session) -> None:
        """Write all that a closing session still has, if its transport takes anything."""
        if session.paused:
            return
        if data := b"".join((*(session.backlog or ()), *session.outbox)):
            session.write(data)

    def forget(self, session: Session) -> None:
        """Let go of a closed session's bytes."""
        self.held.pop(session, None)
        self.held_bytes -= session.backlog_bytes
        session.backlog_bytes = session.droppable_bytes = 0
        session.backlog = None
        session.outbox = []

    def _settle(self, session: Session) -> None:
        """End the tick for a session that cannot take all it got at once."""
        if session.closed:
            return
        if session.backlog is None and not any(session.outbox):
            # Only replies that somebody else has taken already.
            session.outbox.clear()
            return
        self._hold(session)
        self._enforce(session)
        self._release(session)

    def _hold(self, session: Session) -> None:
        """Move the outbox behind the backlog, each message on its own."""
        if session.backlog is None:
            session.backlog = []
            self.held[session] = None
        backlog, before = session.backlog, session.backlog_bytes
        for data in session.outbox:
            if isinstance(data, TopicFrames):
                # Frames on their own are longer than joined: what waits is what is counted.
                apart = data.apart()
                size = sum(map(len, apart))
                session.droppable_bytes += size
                session.backlog_bytes += size
                backlog.extend(apart)
            elif data:
                session.backlog_bytes += len(data)
                backlog.append(data)
        session.outbox.clear()
        session.promised_bytes = 0
        self.held_bytes += session.backlog_bytes - before

    def _append(self, session: Session, data: bytes) -> None:
        assert session.backlog is not None
        session.backlog.append(data)
        session.backlog_bytes += len(data)
        self.held_bytes += len(data)
        if not session.paused:
            self.dirty.append(session)
            self._wake()

    def _release(self, session: Session) -> None:
        """Write the oldest part of the backlog; what is left goes in later ticks."""
        backlog = session.backlog
        if session.paused or session.closed or backlog is None:
            return
        chunk: list[bytes] = []
        if session.dropped:
            chunk.append(session.encoding.op(Dropped(n=session.dropped)))
            session.dropped = 0
        size = count = 0
        for data in backlog:
            if size >= RELEASE_BYTES:
                break
            size += len(data)
            count += 1
            if isinstance(data, TopicFrames):
                session.droppable_bytes -= len(data)
        chunk += backlog[:count]
        del backlog[:count]
        session.backlog_bytes -= size
        self.held_bytes -= size
        if not backlog:
            session.backlog = None
            self.held.pop(session, None)
        else:
            self.dirty.append(session)
            self._wake()
        if chunk:
            session.write(b"".join(chunk))

    def _enforce(self, session: Session) -> None:
        bytes_max = self._options.outbox_bytes_max
        if session.backlog_bytes <= bytes_max:
            return
        self._drop(session, bytes_max)
        if not session.droppable_bytes:
            # Promises may pass the bound by one run, and a session's own replies come on top: no
            # promise alone may bring it to be closed.
            bytes_max *= 2
        if session.backlog_bytes > bytes_max and session.paused:
            self._close(
                session,
                CloseCode.SLOW_CONSUMER,
                f"{session.backlog_bytes} bytes wait for a reader that does not read",
            )

    def _drop(self, session: Session, bytes_max: int) -> None:
        """Drop what came from topics until the backlog fits, as the policy says."""
        policy = self._options.topic_policy
        backlog = session.backlog
        if policy == "close" or backlog is None or not session.droppable_bytes:
            return
        # A quarter more than needed, so that a full outbox is gone through once per many messages.
        excess = session.backlog_bytes - (bytes_max - bytes_max // 4)
        kept: list[bytes] = []
        dropped: list[int] = []
        dropped_bytes = 0
        for data in backlog if policy == "drop_oldest" else reversed(backlog):
            if dropped_bytes < excess and isinstance(data, TopicFrames):
                dropped_bytes += len(data)
                dropped.append(data.id)
            else:
                kept.append(data)
        if policy == "drop_newest":
            kept.reverse()
        session.backlog = kept
        session.backlog_bytes -= dropped_bytes
        session.droppable_bytes -= dropped_bytes
        self.held_bytes -= dropped_bytes
        session.dropped += len(dropped)
        app, address = session.app.name, session.address
        self._recorder.dropped(app, "slow_consumer", len(dropped), address, dropped)

    def _evict(self) -> None:
        """Close the sessions with the largest backlogs until all of them fit in the node's cap."""
        while self.held_bytes > self._options.outboxes_bytes_max and self.held:
            largest = max(self.held, key=lambda session: session.backlog_bytes)
            self._close(largest, CloseCode.OUTBOX_EVICTED, "the node's outboxes are full")
