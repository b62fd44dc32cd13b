"""What the processes of push say to each other over their links: msgpack arrays (P1).

    everybody --Present--> everybody           first of all, when a link is up
    admin --Deliver, Broadcast--> comet --Delivered--> admin
    admin, comet --Close, Withdraw, Subscribed--> comet
    admin --Look--> comet                      what was sent until now may not have come

A frame carries all that a tick has brought for a peer: [[code, field, ..], [code, field, ..], ..].

Codes and the order of fields are the format: add at the end, never change.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Union

import msgspec

from chappe.wire.refusal import UNREADABLE, refusal


class PushOp(msgspec.Struct, gc=False, array_like=True):
    """Any of them."""


class Why(IntEnum):
    """Why a client's connection is to be closed."""

    REPLACED = 0
    REVOKED = 1
    REMOVED = 2


class Deliver(PushOp, tag=1):
    """Hand a note to clients that are on this comet. `note` is the stored body, encoded."""

    number: int
    note: bytes
    clients: list[str]


class Broadcast(PushOp, tag=2):
    """Hand a topic's note to all subscribers on this comet."""

    number: int
    note: bytes


class Delivered(PushOp, tag=3):
    """So many were handed the note; these are not here."""

    number: int
    count: int
    absent: list[str] = []


class Close(PushOp, tag=4):
    """End the connection of a client, if it is older than that: a login is told apart by its
    number. With a token's digest, only if it came with that token."""

    client: str
    why: Why
    login: int = 0
    digest: bytes = b""


class Withdraw(PushOp, tag=5):
    """A note is taken back: from these clients, or if there are none named, from whoever has it."""

    app: str
    note: str
    clients: list[str] = []
    topic: str | None = None


class Subscribed(PushOp, tag=6):
    """A client's topics were changed by somebody else than itself: read them anew."""

    app: str
    client: str


class Present(PushOp, tag=7):
    """Who is at this end: its number among servers, where devices reach it, if it is a comet, and
    whether clients may be on it."""

    server: int
    comet: str = ""
    desk: bool = False


class Look(PushOp, tag=8):
    """Notes were sent, and could not be handed over here: look up what waits."""


PUSH_OPS: tuple[type[PushOp], ...] = (
    Deliver,
    Broadcast,
    Delivered,
    Close,
    Withdraw,
    Subscribed,
    Present,
    Look,
)

_decoder = msgspec.msgpack.Decoder(list[Union[PUSH_OPS]])  # type: ignore[valid-type]
_encode = msgspec.msgpack.Encoder().encode


def encode_push_ops(ops: Sequence[PushOp]) -> bytes:
    """Ops as one frame carries them."""
    return _encode(ops)


def decode_push_ops(data: bytes | memoryview) -> list[PushOp]:
    """Read a frame's ops; raises RemoteProtocolError."""
    try:
        return _decoder.decode(data)
    except UNREADABLE as error:
        raise refusal(error) from None
