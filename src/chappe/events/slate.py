"""The slate: what is exact of a node's events, also if it is killed before the log has them.

The log gets what happened a few times a second. All that becomes of requests and of messages in
queues is put on the slate besides, at once, before anybody else is told of it. That is memory which
a file is mapped to: it costs no call of the operating system, and is that one's to keep when the
process is killed. Not so when the power fails.

    half:    record | record | .. | 0           two of them, in turn: one is written to while
    record:  u32 length | u32 crc | chunk       what the other has is on its way to the log

Each record is a chunk (record.py) of one run, with the serial of the chunk that the log is to get.
So it is known which of them the log has; the others are numbered as if it had had them (lives.py).

A half that is full ends with a record that says how many found no room: should the process be
killed before the log has them, that they are missing is told.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from operator import attrgetter
from struct import Struct
from zlib import crc32

from chappe.events.record import Chunk, decode_chunks

# What an interval brings fits, at more than a thousand a second; see CHUNK_RUNS for those above.
BYTES = 2 * 1024 * 1024

_HEAD = Struct("<II")
_END = bytes(4)
_ONE = b"\x91"
# At the end of a half, for the record that says how many found no room.
LAST_BYTES = 512


class Slate:
    """A place in memory that outlives the process."""

    def __init__(self, memory: mmap.mmap | bytearray) -> None:
        self._memory = memory
        self._half = len(memory) // 2
        self._begin = 0
        self._at = 0
        # Whether what the other half has is on its way: until that has arrived no room is made.
        self.leaving = False
        # How many events found no room in this half.
        self.left_out = 0
        self._clear()

    def put(self, record: bytes) -> bool:
        """Put a record there; False when there is no room."""
        end = self._at + _HEAD.size + len(record)
        if self.left_out or end + len(_END) > self._begin + self._half - LAST_BYTES:
            return False
        self._write(record)
        self._at = end
        return True

    def leave_out(self, events: int, record: Callable[[int], bytes]) -> None:
        """So many events found no room: put a record there that says how many did by now."""
        self.left_out += events
        last = record(self.left_out)
        assert _HEAD.size + len(last) + len(_END) <= LAST_BYTES, "it is short"
        self._write(last)

    def _write(self, record: bytes) -> None:
        whole = b"".join((_HEAD.pack(len(record), crc32(record)), record, _END))
        self._memory[self._at : self._at + len(whole)] = whole

    def turn(self) -> Callable[[], None]:
        """All that is there is on its way to the log; returns what to call when it has arrived."""
        if self.leaving:
            # It stays for longer than it need, behind which there is room as well.
            return _nothing
        self.leaving = True
        self._begin = self._half - self._begin
        self._clear()
        return self._arrived

    def _arrived(self) -> None:
        self.leaving = False

    def _clear(self) -> None:
        self._at = self._begin
        self.left_out = 0
        self._memory[self._at : self._at + len(_END)] = _END


def _nothing() -> None:
    """What stays needs no word."""


def read_slate(memory: bytes) -> list[Chunk]:
    """All that is there, in the order in which it was told."""
    half = len(memory) // 2
    return sorted([*_read(memory[:half]), *_read(memory[half:])], key=attrgetter("serial"))


def _read(half: bytes) -> Iterator[Chunk]:
    at = 0
    while at + _HEAD.size <= len(half):
        length, crc = _HEAD.unpack_from(half, at)
        record = half[at + _HEAD.size : at + _HEAD.size + length]
        # A process that was killed may have been about to write it.
        if not length or crc32(record) != crc:
            return
        yield from decode_chunks(_ONE + record)
        at += _HEAD.size + length
