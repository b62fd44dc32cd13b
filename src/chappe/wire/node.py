"""What nodes say to each other over a link.

    +--------------------------------------------+
    | [[code, field, ..], [code, field, ..], ..] |   one tick's ops, in order, as a msgpack array
    +--------------------------------------------+

All that a tick brings for a link is one frame, made and read by one call. The codes and the order
of fields are the format: add at the end, never change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Union

import msgspec

from chappe.message import Message
from chappe.wire.nodeop import NodeOp as NodeOp  # noqa: PLC0414, others know it from here
from chappe.wire.refusal import UNREADABLE, refusal
from chappe.wire.replica import REPLICA_OPS

# What `first` says of messages whose verdicts nobody numbered: return those that are refused, or
# forget them, since another device of the receiver has taken them.
RETURN_REFUSED = 0
FORGET_REFUSED = -1


class Forward(NodeOp, tag=64):
    """Messages to single receivers; numbered from `first` on, a verdict for each comes back."""

    app: str
    first: int
    messages: list[Message]


class Taken(NodeOp, tag=65):
    """Messages were taken, so many from `first` on; to a topic, by so many nodes."""

    first: int
    count: int
    nodes: int = 0


class Returned(NodeOp, tag=66):
    """A message was refused, and nothing became of it here."""

    number: int
    app: str
    error: str
    reason: str
    message: Message
    unknown: bool = False


class ToHome(NodeOp, tag=67):
    """Messages to topics, for their home; a node that is not home forwards them once."""

    app: str
    first: int
    messages: list[Message]
    forwarded: bool = False
    # Whether nobody asked for verdicts: only those that are refused come back, without a number.
    silent: bool = False


class FromHome(NodeOp, tag=68):
    """Messages to one topic, for the subscribers on this node."""

    app: str
    messages: list[Message]


class Routes(NodeOp, tag=69):
    """A page of the connection table; with `last`, deltas go on from `seq`."""

    seq: int
    app: str
    addresses: list[str]
    last: bool = False


class Changed(NodeOp, tag=70):
    """Who came and went since the delta before this one, each as (app, address)."""

    seq: int
    online: list[tuple[str, str]]
    offline: list[tuple[str, str]]
    # When, by the clock of the node they came to or left.
    at_ms: int = 0


class Find(NodeOp, tag=72):
    """Is this address connected to you?"""

    number: int
    app: str
    address: str


class Found(NodeOp, tag=73):
    """Whether it is."""

    number: int
    here: bool


class Watch(NodeOp, tag=74):
    """This node has subscribers of these topics, whose home you are."""

    app: str
    topics: list[str]


class Unwatch(NodeOp, tag=75):
    """This node has none any more."""

    app: str
    topics: list[str]


class Watched(NodeOp, tag=76):
    """A watch is known at the home; and where the topic's history is, if it has one."""

    app: str
    topic: str
    epoch: str = ""
    offset: int = 0


class Recover(NodeOp, tag=77):
    """What came since this place in a topic's history?"""

    number: int
    app: str
    topic: str
    epoch: str | None = None
    offset: int | None = None


class Recovered(NodeOp, tag=78):
    """That, if it is still there, and where the topic is now."""

    number: int
    epoch: str
    offset: int
    whole: bool
    messages: list[Message]


class Introduce(NodeOp, tag=79):
    """A session of this node, of which ops will be carried; scopes as lists of patterns."""

    session: str
    app: str
    address: str
    scopes: dict[str, list[str]]


class Carry(NodeOp, tag=80):
    """An op of that session, packed, to be carried out at your end."""

    session: str
    op: bytes


class Brought(NodeOp, tag=81):
    """What your session is told: packed ops behind their lengths, in order."""

    session: str
    data: bytes


class Departed(NodeOp, tag=82):
    """That session has left; or, from the other side, is not known (any more)."""

    session: str


class Records(NodeOp, tag=83):
    """What administrators have made, as far as it may be news: packed, each on its own."""

    records: list[bytes]


class Visit(NodeOp, tag=84):
    """An HTTP request whose session is yours."""

    number: int
    request: bytes


class VisitPart(NodeOp, tag=85):
    """A part of its answer; nothing after the last."""

    number: int
    part: bytes
    last: bool = False


class VisitOver(NodeOp, tag=86):
    """Nobody waits for that answer any more."""

    number: int


class Handed(NodeOp, tag=87):
    """Messages of queues that this node held, and that live on yours now: each with its queue."""

    app: str
    messages: list[tuple[str, bytes]]


class Left(NodeOp, tag=88):
    """Who left not long ago, each as (app, address, when)."""

    users: list[tuple[str, str, int]]


class Known(NodeOp, tag=89):
    """Of whom it was told already that they are gone, each as (app, address)."""

    users: list[tuple[str, str]]


class Missed(NodeOp, tag=90):
    """So many messages to this topic, or user, were left out: the link had no room for them."""

    app: str
    to: str
    count: int


class Settled(NodeOp, tag=91):
    """All that follows from the nodes this one sees has been said; their names, hashed."""

    view: int


class Interim(NodeOp, tag=92):
    """This node was the home of topics that are yours, and kept histories: what they hold is not in
    those that you kept."""

    app: str
    topics: list[str]


OPS: tuple[type[NodeOp], ...] = (
    Forward,
    Taken,
    Returned,
    ToHome,
    FromHome,
    Routes,
    Changed,
    Find,
    Found,
    Watch,
    Unwatch,
    Watched,
    Recover,
    Recovered,
    Introduce,
    Carry,
    Brought,
    Departed,
    Records,
    Visit,
    VisitPart,
    VisitOver,
    Handed,
    Left,
    Known,
    Missed,
    Settled,
    Interim,
    *REPLICA_OPS,
)

_decoder: msgspec.msgpack.Decoder[list[Any]] = msgspec.msgpack.Decoder(list[Union[OPS]])  # type: ignore[valid-type]
_encode = msgspec.msgpack.Encoder().encode


def encode_node_ops(ops: Sequence[NodeOp]) -> bytes:
    """One frame's body."""
    return _encode(ops)


def decode_node_ops(body: bytes) -> list[Any]:
    """The ops of a frame; raises RemoteProtocolError."""
    try:
        return _decoder.decode(body)
    except UNREADABLE as error:
        raise refusal(error) from None
