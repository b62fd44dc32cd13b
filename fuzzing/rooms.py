"""What rooms read: ops of other roles, and datagrams that anybody can send to a port."""

from __future__ import annotations

from random import Random

from chappe.message import Message
from chappe.rooms.options import RoomsOptions
from chappe.rooms.post import Post
from chappe.wire.datagram import Kind, Seal, body_of, datagram_key, read_head
from chappe.wire.rooms import (
    Announce,
    Card,
    Carry,
    Confirmed,
    Count,
    Deliver,
    Entry,
    Here,
    Probe,
    Pulse,
    Pulsed,
    RoleKind,
    RoomOp,
    Stamp,
    State,
    Submit,
    decode_room_ops,
    encode_room_op,
    join_room_ops,
)

_SECRET, _CLUSTER = b"s" * 32, "chappe"
_A, _B = ("10.0.0.1", 7404), ("::1", 7404)
_MESSAGE = Message(7, "user:a", "room:b", 1_700_000_000_000, b'{"a":1}')
_CARD = Card("gateway", 3, "::1", 7404)
_OPS: tuple[RoomOp, ...] = (
    Submit("shop", 5, _MESSAGE, True),
    Carry("shop", 5, _MESSAGE, False, 1, 2),
    Deliver("shop", Message(8, "user:a", "room:b", 1, b"\xff" * 3000, binary=True), True, 1, 2),
    Announce(_CARD, [Entry("shop", "b", 5, 1, 2), Entry("shop", "c", 6, 2, 0)]),
    Confirmed("gateway", 3, [1, 2**40], 2),
    Pulse(RoleKind.BROKER, 1, RoleKind.GATEWAY, 3, 9, 1.5, 4, _CARD),
    Pulsed(RoleKind.PROXY, 1, RoleKind.BROKER, 2, 9, 1.5, 1_700_000_000_000_000, State.INIT),
    Count("shop", "b", 5, 1, 200, _CARD),
    Here(1, "gateway", ["user:a", "user:é"]),
    Probe(1, 2, 2, 4, _CARD, [Stamp("n", RoleKind.PROXY, 1, 2, -3)]),
)


def read_room_ops(data: bytes) -> None:
    """What was read can be written again and read as the same."""
    again = _encoded(decode_room_ops(data))
    assert _encoded(decode_room_ops(again)) == again


def read_datagram(data: bytes) -> None:
    """Take a datagram as it came; or, after an odd byte, one with that kind, body and a right MAC.

    Nothing is taken that was not sealed, and no answer is larger than what it answers.
    """
    post, genuine = _talk()
    data, forged = data[1:], not data or data[0] % 2 == 0
    if not forged:
        kind = data[0] if data else 0
        _, life, ticket, counter = read_head(genuine[-1])
        seal = Seal(datagram_key(_SECRET, _CLUSTER), *_B)
        data = seal.write(kind, life, ticket, counter + 1, data[1:])  # type: ignore[arg-type]
    said = post.take(data, _A, 0.0)
    assert not said or not forged or data in genuine
    _encoded([op for op, _ in said])
    assert all(len(answer) <= len(data) for _, answer in post.flush(0.0))


def _encoded(ops: list[RoomOp]) -> bytes:
    return join_room_ops([encode_room_op(op) for op in ops])


def _post(me: tuple[str, int], seed: int) -> Post:
    return Post(
        options=RoomsOptions(),
        me=me,
        name="node",
        secret=_SECRET,
        cluster=_CLUSTER,
        entropy=Random(seed).randbytes,
        on_waiting=lambda: None,
    )


def _talk() -> tuple[Post, list[bytes]]:
    """A post that has given somebody a ticket; and what that one says with it, and said before."""
    sender, post = _post(_A, 1), _post(_B, 2)
    for op in _OPS:
        sender.send(_B, op)
    ((_, hello),) = sender.flush(0.0)
    post.take(hello, _A, 0.0)
    ((_, welcome),) = post.flush(0.0)
    sender.take(welcome, _B, 0.0)
    return post, [hello, welcome, *(data for _, data in sender.flush(0.0))]


def _datagrams() -> tuple[bytes, ...]:
    _, genuine = _talk()
    bodies = [bytes([1, read_head(data)[0]]) + body_of(data) for data in genuine]
    return (*(b"\0" + data for data in genuine), *bodies, bytes([1, Kind.STRANGER]))


ROOM_ARRAYS = (_encoded(list(_OPS)), *(_encoded([op]) for op in _OPS))
DATAGRAMS = _datagrams()
