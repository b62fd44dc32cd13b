"""Outboxes of devices: one write per connection per tick, encrypted when it is written.

What waits in an outbox is not encrypted yet: the bodies of notes are shared, and the cipher's
counter goes by the order in which messages are written. Many outboxes are written in slices, a turn
of the loop each. A connection that does not take what it is given keeps its outbox until it does;
one that lets it grow above the bound is ended, and gets what waits when it comes back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from chappe.push.comet.counters import Counters
from chappe.push.comet.ending import KEY_USED_UP, SLOW, Ending
from chappe.push.comet.parcel import Parcel
from chappe.push.comet.session import DeviceSession
from chappe.wire.push import message_list_frames
from chappe.wire.pushcipher import MESSAGES_MAX, Sealing

# Written in one turn of the loop: half a millisecond of encrypting.
FLUSH_SESSIONS = 64
# A session ends before its key is used up; one outbox holds fewer messages than that.
_MESSAGES_MAX = MESSAGES_MAX - 2**20


class Page:
    """What answers get_message_list: goes into as few frames as hold it."""

    __slots__ = ("parcels", "size")

    def __init__(self, parcels: list[Parcel]) -> None:
        self.parcels = parcels
        self.size = 4 + sum(parcel.size for parcel in parcels)


Item = bytes | Parcel | Page


class Outboxes:
    """All outboxes of a comet; `dirty` are those to be written."""

    __slots__ = ("_bytes_max", "_counters", "_end", "_wake", "_written", "dirty")

    def __init__(
        self,
        bytes_max: int,
        counters: Counters,
        wake: Callable[[], None],
        end: Callable[[DeviceSession, Ending], None],
        written: Callable[[DeviceSession], None],
    ) -> None:
        self._bytes_max = bytes_max
        self._counters = counters
        self._wake = wake
        self._end = end
        self._written = written
        self.dirty: deque[DeviceSession] = deque()

    def room(self, session: DeviceSession) -> int:
        """How many bytes a session takes."""
        return self._bytes_max - session.outbox_bytes

    def put(self, session: DeviceSession, item: Item) -> None:
        """Let something be written to a session at the end of the tick."""
        if session.closed:
            return
        if session.outbox is None:
            session.outbox = [item]
            if not session.paused:
                self.dirty.append(session)
                self._wake()
        else:
            session.outbox.append(item)
        session.outbox_bytes += len(item) if isinstance(item, bytes) else item.size
        if session.paused and session.outbox_bytes > self._bytes_max:
            self._end(session, SLOW)

    def pause(self, session: DeviceSession) -> None:
        """The connection takes no more for now."""
        session.paused = True

    def resume(self, session: DeviceSession) -> None:
        """The connection takes more."""
        session.paused = False
        if session.outbox is not None:
            self.dirty.append(session)
            self._wake()
        else:
            self._written(session)

    def flush(self) -> bool:
        """Write some of the outboxes; whether there are more."""
        for _ in range(min(len(self.dirty), FLUSH_SESSIONS)):
            session = self.dirty.popleft()
            if session.outbox is None or session.paused:
                continue
            self.write(session)
            if isinstance(session.key, Sealing) and session.key.count > _MESSAGES_MAX:
                self._end(session, KEY_USED_UP)
            elif not session.paused:
                self._written(session)
        return bool(self.dirty)

    def write(self, session: DeviceSession) -> None:
        """Write all that a session has, as one."""
        items, session.outbox = session.outbox, None
        session.outbox_bytes = 0
        if not items:
            return
        frames: list[bytes] = []
        for item in items:
            if isinstance(item, bytes):
                frames.append(item)
                continue
            sealing = session.key
            assert isinstance(sealing, Sealing), "nobody is handed a note before the key is agreed"
            if isinstance(item, Parcel):
                frames.append(item.frame(sealing))
            else:
                frames += message_list_frames([one.sealed(sealing) for one in item.parcels])
        data = frames[0] if len(frames) == 1 else b"".join(frames)
        self._counters.writes += 1
        self._counters.bytes_out += len(data)
        session.sink.write(data)
