"""Frames of the links of push: how much an op takes, and how many go into one frame."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from chappe.wire.pushlink import PushOp, encode_push_ops

# What an op takes beside texts and bytes: its code and numbers.
OP_BYTES = 64
# Of a text, at the most.
_LENGTH_BYTES = 5
_CHARACTER_BYTES = 4


def op_bytes(op: PushOp) -> int:
    """What an op takes in a frame: no less, and a little more."""
    return OP_BYTES + sum(map(_value_bytes, msgspec.structs.astuple(op)))


def frames(ops: Iterable[tuple[PushOp, int]], most: int) -> Iterator[bytes]:
    """Ops, each with its size, as frames of so many bytes; one that is larger goes alone."""
    frame: list[PushOp] = []
    size = 0
    for op, op_size in ops:
        if frame and size + op_size > most:
            yield encode_push_ops(frame)
            frame, size = [], 0
        frame.append(op)
        size += op_size
    if frame:
        yield encode_push_ops(frame)


def _value_bytes(value: Any) -> int:
    if isinstance(value, str):
        return _LENGTH_BYTES + len(value) * (1 if value.isascii() else _CHARACTER_BYTES)
    if isinstance(value, bytes):
        return _LENGTH_BYTES + len(value)
    return sum(map(_value_bytes, value)) if isinstance(value, list) else 0
