"""Batches: what is written, synced, copied and checked as one.

A position in a journal (LSN) is the number of bytes before it since the journal's beginning, so the
batch after one at `lsn` is at `lsn` plus its length.

     0       4     5     6        8        16       24       32       36     40   41      45
     +-------+-----+-----+--------+--------+--------+--------+--------+------+----+-------+-----//
     | magic | ver | flg |  zero  | epoch  |  lsn   | ts_ms  | length | crc  | dd | count | body
     +-------+-----+-----+--------+--------+--------+--------+--------+------+----+-------+-----//
       4 B    u8    u8     u16      u64      u64      u64      u32      u32    u8   u32     length

All numbers are big-endian. `flg` bit 0 (FIRST) says that the batch begins a segment, and so with a
snapshot. `length` is that of the body: the records, each a msgpack value, one after another. `crc`
is the CRC-32 of all the rest, header and body. The byte 0xdd and the count make a msgpack array of
whatever follows, so that from byte 40 on all records are read in one go.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple
from zlib import crc32

import msgspec

MAGIC = b"ChJ\xb5"
VERSION = 1
FIRST = 1
BODY_BYTES_MAX = 64 * 1024 * 1024

_HEAD = Struct(">4sBBHQQQI")
_TAIL = Struct(">BI")
_CRC = Struct(">I")
_CRC_AT = _HEAD.size
_ARRAY_AT = _CRC_AT + _CRC.size
_ARRAY32 = 0xDD
HEADER_BYTES = _ARRAY_AT + _TAIL.size
LSN_MAX = 2**63


class Batch(msgspec.Struct, frozen=True):
    """A whole batch, its CRC checked."""

    lsn: int
    epoch: int
    ts_ms: int
    count: int
    first: bool
    data: bytes

    @property
    def end(self) -> int:
        """The LSN of the next."""
        return self.lsn + len(self.data)

    @property
    def body(self) -> bytes:
        """The records, one after another."""
        return self.data[HEADER_BYTES:]

    @property
    def array(self) -> memoryview:
        """The records as a msgpack array."""
        return memoryview(self.data)[_ARRAY_AT:]


class Torn(NamedTuple):
    """The buffer ends before the batch does; so many bytes are needed from its beginning on."""

    needed: int


class Damaged(NamedTuple):
    """There is no batch here; `skip` is how long it says it is, if that can be believed at all."""

    reason: str
    skip: int = 0


def encode_batch(
    records: Iterable[bytes], *, lsn: int, epoch: int, ts_ms: int, count: int, first: bool = False
) -> bytes:
    """Lay out a batch of records that are encoded already."""
    body = b"".join(records)
    assert len(body) <= BODY_BYTES_MAX
    head = _HEAD.pack(MAGIC, VERSION, FIRST if first else 0, 0, epoch, lsn, ts_ms, len(body))
    tail = _TAIL.pack(_ARRAY32, count)
    return b"".join((head, _CRC.pack(_checksum(head, tail, body)), tail, body))


def read_batch(buffer: bytes, offset: int = 0) -> Batch | Torn | Damaged:
    """Read the batch that begins at an offset, and check it."""
    if len(buffer) - offset < HEADER_BYTES:
        return Torn(HEADER_BYTES)
    magic, version, flags, zero, epoch, lsn, ts_ms, length = _HEAD.unpack_from(buffer, offset)
    array, count = _TAIL.unpack_from(buffer, offset + _ARRAY_AT)
    if magic != MAGIC or version != VERSION:
        return Damaged(f"no batch of version {VERSION} begins here")
    beyond = length > BODY_BYTES_MAX or count > length or lsn > LSN_MAX
    if beyond or flags & ~FIRST or zero or array != _ARRAY32:
        return Damaged(f"its header makes no sense ({length} bytes, {count} records)")
    end = offset + HEADER_BYTES + length
    if len(buffer) < end:
        return Torn(HEADER_BYTES + length)
    data = buffer[offset:end]
    view = memoryview(data)
    checksum = _checksum(view[:_CRC_AT], view[_ARRAY_AT:HEADER_BYTES], view[HEADER_BYTES:])
    if _CRC.unpack_from(data, _CRC_AT)[0] == checksum:
        return Batch(lsn, epoch, ts_ms, count, bool(flags & FIRST), data)
    return Damaged("the checksum is wrong", HEADER_BYTES + length)


def peek_ts(header: bytes) -> int:
    """When a batch says that it was written, unchecked; 0 when that cannot be read."""
    if len(header) < HEADER_BYTES or header[:4] != MAGIC:
        return 0
    ts_ms: int = _HEAD.unpack_from(header)[6]
    return ts_ms


def peek_lsn(buffer: bytes, offset: int) -> int | None:
    """The position that a batch says it has, unchecked; None when that cannot be read."""
    if len(buffer) - offset < HEADER_BYTES or not buffer.startswith(MAGIC, offset):
        return None
    lsn: int = _HEAD.unpack_from(buffer, offset)[5]
    return lsn


def _checksum(head: bytes | memoryview, tail: bytes | memoryview, body: bytes | memoryview) -> int:
    return crc32(body, crc32(tail, crc32(head)))
