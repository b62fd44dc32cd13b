"""What the roles of rooms say to each other (R1): msgpack arrays, several to a datagram.

    +--------------------------------------------+
    | [[code, field, ..], [code, field, ..], ..] |   as much as fits into one datagram
    +--------------------------------------------+

A message goes publisher -> proxy -> broker -> gateway: Submit, Carry, Deliver. Who is in which room
goes gateway -> router -> broker: Announce, Login; and back as Noted, Confirmed. The codes and the
order of fields are the format: add at the end, never change.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Union

import msgspec

from chappe.message import Message
from chappe.wire.refusal import UNREADABLE, refusal

# The app of rooms that only probes go to.
PSEUDO_APP = "~"
# Of a question that is for a proxy, which finds out the partition.
ANY_PARTITION = -1


class RoleKind(IntEnum):
    """What a process does for rooms."""

    PUBLISHER = 1
    PROXY = 2
    BROKER = 3
    ROUTER = 4
    GATEWAY = 5


class State(IntEnum):
    """Whether somebody takes messages, or only makes ready to."""

    INIT = 0
    RUNNING = 1


class Card(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A gateway, as it tells of itself. Of two cards with one name the larger epoch counts."""

    name: str
    epoch: int
    host: str
    port: int


class Entry(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A room on a gateway: how many members it has there; none: it is left.

    `seq` grows with each entry that a gateway makes: of two about one room the larger counts.
    """

    app: str
    room: str
    number: int
    seq: int
    members: int


class Stamp(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """When a probe came to a role and left it, by its clock, in microseconds since 1970.

    `ahead` is by how much the clock of whoever gets it next is ahead of this one's, if known.
    """

    name: str
    role: RoleKind
    came: int
    went: int
    ahead: int = 0


class RoomOp(msgspec.Struct, gc=False, array_like=True):
    """Any of them."""


class Submit(RoomOp, tag=1):
    """A message to a room, from a publisher to a proxy; a reliable one comes by several (R13)."""

    app: str
    number: int
    message: Message
    reliable: bool = False


class Carry(RoomOp, tag=2):
    """A message on its way from a proxy, by its id in the registry, to a broker of a partition.

    To a broker of its own process a proxy says which node it had it from (rooms/hops.py).
    """

    app: str
    number: int
    message: Message
    reliable: bool
    proxy: int
    partition: int
    giver: str | None = None


class Deliver(RoomOp, tag=3):
    """A message for the members on a gateway; it came by this proxy and this broker.

    To a gateway of its own process, and to no other, a broker says which node it had it from.
    """

    app: str
    message: Message
    reliable: bool
    proxy: int
    broker: int
    giver: str | None = None


class Announce(RoomOp, tag=4):
    """What changed in the rooms of a gateway, for a router."""

    card: Card
    entries: list[Entry]


class Login(RoomOp, tag=5):
    """The same from a router to a broker of a partition."""

    partition: int
    card: Card
    entries: list[Entry]


class Noted(RoomOp, tag=6):
    """A broker has taken entries of a gateway to heart."""

    broker: int
    partition: int
    gateway: str
    epoch: int
    seqs: list[int]


class Confirmed(RoomOp, tag=7):
    """So many brokers, all that have to, know of these entries.

    With the id of an independent router: its own brokers do, as the router that passed them asked.
    """

    gateway: str
    epoch: int
    seqs: list[int]
    brokers: int
    router: int = 0


class Pass(RoomOp, tag=8):
    """What a gateway announced, from an independent router to the others of its partition (R12)."""

    card: Card
    entries: list[Entry]
    partition: int = 0


class Goodbye(RoomOp, tag=9):
    """A gateway is leaving, and all its rooms with it; said by itself, then by routers."""

    card: Card


class Pulse(RoomOp, tag=10):
    """Are you there? From a role with its id to a role with its id (0: it has none).

    `number` is the sender's partition_num. It goes the way of messages, so who answers, moves (R5).
    """

    sender: RoleKind
    sender_id: int
    role: RoleKind
    id: int
    beat: int
    sent: float
    number: int = 0
    # Of a gateway: who it is, and of a broker to an independent router: what it serves.
    card: Card | None = None
    partition: int = 0
    # Of a router: how many rows were news to it, and how many of these are in the store.
    news: int = 0
    stored: int = 0


class Pulsed(RoomOp, tag=11):
    """The answer: what was sent comes back, with the answerer's clock in microseconds.

    `taken` counts the messages that the answerer took from this sender: one that is sent messages,
    answers, and takes none, moves nothing. `number` is a broker's own modulus: it keeps the rooms
    with room % number == partition % number.
    """

    sender: RoleKind
    sender_id: int
    role: RoleKind
    id: int
    beat: int
    sent: float
    at: int
    state: State
    taken: int = 0
    number: int = 0
    partition: int = 0
    # Of an independent router: whether it has something to tell a broker that is new.
    news: int = 0


class Count(RoomOp, tag=12):
    """How many are in a room? From a gateway by a proxy to a broker, answered to the gateway.

    With a limit, and no more members than that, also who they are.
    """

    app: str
    room: str
    number: int
    ask: int
    limit: int
    card: Card
    partition: int = 0


class Counted(RoomOp, tag=13):
    """So many, on so many gateways, `names` of which will say who."""

    ask: int
    members: int
    gateways: int
    names: int


class Who(RoomOp, tag=14):
    """Who is in a room here? From a broker to a gateway; answered to the one that asked."""

    app: str
    room: str
    ask: int
    limit: int
    card: Card


class Here(RoomOp, tag=15):
    """These are: addresses, each as often as it has sessions."""

    ask: int
    gateway: str
    members: list[str]


class Probe(RoomOp, tag=16):
    """A message of a pseudo user to a pseudo room, which each role stamps (R15).

    It goes by one proxy to one broker of a partition, which has to know that the gateway it came
    from is in that room. `number` is the probe's own, among those of its gateway.
    """

    number: int
    room: int
    partition: int
    broker: int
    card: Card
    stamps: list[Stamp]


ROOM_OPS: tuple[type[RoomOp], ...] = (
    Submit,
    Carry,
    Deliver,
    Announce,
    Login,
    Noted,
    Confirmed,
    Pass,
    Goodbye,
    Pulse,
    Pulsed,
    Count,
    Counted,
    Who,
    Here,
    Probe,
)
# More than one datagram, or one message put together from several, could ever need.
OPS_MAX = 4095

_decoder = msgspec.msgpack.Decoder(list[Union[ROOM_OPS]])  # type: ignore[valid-type]
_encode = msgspec.msgpack.Encoder().encode


def encode_room_op(op: RoomOp) -> bytes:
    """One op, as it stands in a datagram among others."""
    return _encode(op)


def join_room_ops(ops: Sequence[bytes]) -> bytes:
    """Put encoded ops together as one array, OPS_MAX at most."""
    count = len(ops)
    head = bytes((0x90 + count,)) if count < 16 else b"\xdc" + count.to_bytes(2, "big")
    return b"".join((head, *ops))


def decode_room_ops(data: bytes | memoryview) -> list[RoomOp]:
    """Read an array of ops; raises RemoteProtocolError."""
    try:
        return _decoder.decode(data)
    except UNREADABLE as error:
        raise refusal(error) from None
