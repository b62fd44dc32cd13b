"""What brokers say to each other over a bus: an envelope with several ops, packed.

    envelope  [VERSION, sender, [op, ...]]
    deliver   [1, number, id, ts_ms, key, payload, binary]    to the sessions that have a key
    close     [2, number, key, code, reason]                  those sessions
    changed   [3, number, [key, ...] or nil]                  who has these keys, or any key at all
    answers   [4, [[number, count], ...]]                     how many sessions that reached

A number that is not 0 asks for an answer. A payload is what the session gets: the whole text, or
any bytes.
"""

from __future__ import annotations

import msgspec

from chappe.errors import RemoteProtocolError

VERSION = 1


class Deliver(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    """Hand this to the sessions with a key."""

    number: int
    id: int
    ts_ms: int
    key: str
    payload: bytes
    binary: bool


class Close(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False):
    """Close the sessions with a key."""

    number: int
    key: str
    code: int
    reason: str


class Changed(msgspec.Struct, frozen=True, array_like=True, tag=3, gc=False):
    """Others than before have these keys; None: whatever was known is to be forgotten."""

    number: int
    keys: list[str] | None


class Answers(msgspec.Struct, frozen=True, array_like=True, tag=4, gc=False):
    """How many sessions each of these numbers reached."""

    counts: list[tuple[int, int]]


BusOp = Deliver | Close | Changed | Answers


class Envelope(msgspec.Struct, frozen=True, array_like=True):
    """What one broker says to another in a moment."""

    version: int
    sender: str
    ops: list[BusOp]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Envelope).decode


def encode_envelope(sender: str, ops: list[BusOp]) -> bytes:
    """Pack an envelope."""
    return _encode(Envelope(VERSION, sender, ops))


def decode_envelope(data: bytes) -> Envelope:
    """Read an envelope; raises RemoteProtocolError."""
    if not data.startswith(b"\x93\x01"):
        raise RemoteProtocolError(f"not an envelope of version {VERSION}")
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise RemoteProtocolError(f"envelope: {error}") from None
