"""Parcels: several ops to a datagram, or one op that is too large for it in pieces.

    +--------+-----------+-----------+------+
    | id u32 | index u16 | count u16 | part |   one op, encoded, is its parts one after the other
    +--------+-----------+-----------+------+

An id is a sender's own, and counts up. All parts but the last are of some size, so that whoever
puts them together knows how many there can be. A piece that is lost takes its op with it.
"""

from __future__ import annotations

import math
import struct
from collections import OrderedDict
from collections.abc import Iterable, Iterator

from chappe.wire.datagram import OVERHEAD_BYTES, BadDatagram, Kind, Readable
from chappe.wire.rooms import OPS_MAX, join_room_ops

_PIECE = struct.Struct("!IHH")
_IDS = 2**32
# What an array of ops begins with, at most.
_ARRAY_BYTES = 3
PART_BYTES_MIN = 256
PIECES_MAX = 2**16 - 1
# What keeping any part of an op costs besides its bytes.
PARTIAL_BYTES = 512
# A sender sends one op after the other: of more than that, the first ones have lost a piece.
PARTIALS_MAX = 64
# Among ops to be packed: what follows goes into another datagram.
APART = b""


class Packer:
    """Puts ops into the bodies of datagrams, in their order."""

    def __init__(self, datagram_bytes: int) -> None:
        self._body_bytes_max = datagram_bytes - OVERHEAD_BYTES
        self._part_bytes = self._body_bytes_max - _PIECE.size
        self._next_id = 0
        assert self._part_bytes >= PART_BYTES_MIN
        self.op_bytes_max = self._part_bytes * PIECES_MAX

    def pieces(self, size: int) -> int:
        """How many datagrams an op of that size needs for itself; 1 if others fit beside it."""
        if size + _ARRAY_BYTES <= self._body_bytes_max:
            return 1
        return -(-size // self._part_bytes)

    def pack(self, ops: Iterable[bytes]) -> Iterator[tuple[Kind, bytes]]:
        """The bodies, each as large as it may be; no op may be larger than op_bytes_max."""
        batch: list[bytes] = []
        size = _ARRAY_BYTES
        for op in ops:
            if batch and (
                op == APART or size + len(op) > self._body_bytes_max or len(batch) == OPS_MAX
            ):
                yield Kind.PARCEL, join_room_ops(batch)
                batch, size = [], _ARRAY_BYTES
            if op == APART:
                continue
            if size + len(op) > self._body_bytes_max:
                yield from self._split(op)
            else:
                batch.append(op)
                size += len(op)
        if batch:
            yield Kind.PARCEL, join_room_ops(batch)

    def _split(self, op: bytes) -> Iterator[tuple[Kind, bytes]]:
        step = self._part_bytes
        count = self.pieces(len(op))
        piece_id = self._next_id
        self._next_id = (piece_id + 1) % _IDS
        for index in range(count):
            part = op[index * step : (index + 1) * step]
            yield Kind.PIECE, _PIECE.pack(piece_id, index, count) + part


class _Partial:
    """What has come of one op."""

    __slots__ = ("bytes", "count", "parts", "until")

    def __init__(self, count: int, until: float) -> None:
        self.count = count
        self.until = until
        # Not a list: a sender that says 65,535 has not sent them yet.
        self.parts: dict[int, bytes] = {}
        self.bytes = PARTIAL_BYTES


class Pieces:
    """Puts ops together from pieces of many senders, within bounds: oldest are given up first."""

    def __init__(self, *, op_bytes_max: int, bytes_max: int, seconds: float) -> None:
        self._op_bytes_max = op_bytes_max
        self._bytes_max = bytes_max
        self._seconds = seconds
        # All wait equally long, so the oldest is first to be due.
        self._partials: OrderedDict[tuple[int, int], _Partial] = OrderedDict()
        self._ids: dict[int, OrderedDict[int, None]] = {}
        self.bytes = 0
        # Ops that were never whole.
        self.given_up = 0

    def __len__(self) -> int:
        return len(self._partials)

    @property
    def due(self) -> float:
        """When `expire` has something to do."""
        return next(iter(self._partials.values())).until if self._partials else math.inf

    def take(self, sender: int, body: Readable, now: float) -> bytes | None:
        """Take a piece; return the op, encoded, if it was the last that was missing.

        Raises BadDatagram.
        """
        piece_id, index, count, part = self._read(body)
        key = (sender, piece_id)
        partial = self._partials.get(key) or self._begin(key, count, now)
        if count != partial.count or index in partial.parts:
            raise BadDatagram("garbage")
        partial.parts[index] = part
        partial.bytes += len(part)
        self.bytes += len(part)
        if partial.bytes > self._op_bytes_max + PARTIAL_BYTES:
            self._give_up(key)
            raise BadDatagram("oversize")
        if len(partial.parts) == count:
            self._remove(key)
            return b"".join([partial.parts[at] for at in range(count)])
        self._make_room()
        return None

    def expire(self, now: float) -> None:
        """Give up what has waited long enough."""
        while self.due <= now:
            self._give_up(next(iter(self._partials)))

    def forget(self, sender: int) -> None:
        """Give up all of a sender."""
        for piece_id in list(self._ids.get(sender, ())):
            self._give_up((sender, piece_id))

    def _read(self, body: Readable) -> tuple[int, int, int, bytes]:
        if len(body) <= _PIECE.size:
            raise BadDatagram("garbage")
        piece_id, index, count = _PIECE.unpack_from(body)
        part = bytes(body[_PIECE.size :])
        if index >= count or count < 2 or (index < count - 1 and len(part) < PART_BYTES_MIN):
            raise BadDatagram("garbage")
        if (count - 1) * PART_BYTES_MIN > self._op_bytes_max:
            raise BadDatagram("oversize")
        return piece_id, index, count, part

    def _begin(self, key: tuple[int, int], count: int, now: float) -> _Partial:
        sender, piece_id = key
        ids = self._ids.get(sender, ())
        if len(ids) >= PARTIALS_MAX:
            self._give_up((sender, next(iter(ids))))
        partial = self._partials[key] = _Partial(count, now + self._seconds)
        self._ids.setdefault(sender, OrderedDict())[piece_id] = None
        self.bytes += partial.bytes
        return partial

    def _make_room(self) -> None:
        while self.bytes > self._bytes_max:
            self._give_up(next(iter(self._partials)))

    def _give_up(self, key: tuple[int, int]) -> None:
        self.given_up += 1
        self._remove(key)

    def _remove(self, key: tuple[int, int]) -> None:
        sender, piece_id = key
        self.bytes -= self._partials.pop(key).bytes
        ids = self._ids[sender]
        del ids[piece_id]
        if not ids:
            del self._ids[sender]
