"""Readers that do not read, and publishers that do not care."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from chappe.errors import Overload
from chappe.wire.ops import Ping, Publish, Subscribe

from .conftest import Witness
from .peer import Peer, connect
from .process import NodeProcess

# What the kernel holds for a reader is beyond the node's reach: as little of it as may be.
RECEIVE_BUFFER = 4096
_BATCH = 50


def stuck_reader(node: NodeProcess, form: str, as_: str, topic: str | None = None) -> Peer:
    """A peer that has said hello and subscribed, and reads nothing until it is asked to."""
    peer = connect(node.addresses, form, receive_buffer=RECEIVE_BUFFER)
    return _introduced(peer, as_, topic)


def subscriber(node: NodeProcess, form: str, as_: str, topic: str) -> Peer:
    """A peer that is ready to read."""
    return _introduced(connect(node.addresses, form), as_, topic)


def _introduced(peer: Peer, as_: str, topic: str | None) -> Peer:
    assert peer.greet(as_)["ok"]
    if topic is not None:
        assert peer.ask(Subscribe(id=2, to=topic))["ok"]
    return peer


def publish_numbers(
    node: NodeProcess, topic: str, count: int, size: int, readers: Sequence[Peer] = ()
) -> None:
    """Publish so many numbered messages, no faster than the readers get each of them, in order;
    return when the node has taken all."""
    with connect(node.addresses, "tcp") as peer:
        assert peer.greet("user:publisher")["ok"]
        padding = "x" * size
        for start in range(0, count, _BATCH):
            numbers = range(start, min(start + _BATCH, count))
            peer.say(*(Publish(to=topic, data=_raw([n, padding])) for n in numbers))
            for reader in readers:
                assert numbers_of(reader.hear() for _ in numbers) == list(numbers)
        peer.say(Ping(id=3))
        assert peer.hear_op("pong")


def read_numbers(peer: Peer, count: int) -> tuple[list[int], list[tuple[int, int]]]:
    """Read until messages and dropped ones make up `count`: the numbers of those that came, and
    each notice as its place among them and how many it tells of."""
    numbers: list[int] = []
    notices: list[tuple[int, int]] = []
    while len(numbers) + sum(n for _, n in notices) < count:
        op = peer.hear()
        if op["op"] == "dropped":
            notices.append((len(numbers), op["n"]))
        else:
            assert op["op"] == "message", op
            numbers.append(_data(op)[0])
    return numbers, notices


def send_until_full(witness: Witness, to: str, payload: str, at_most: int = 20_000) -> list[str]:
    """Send until the receiver's outbox is full; return the ids that were answered with ok."""
    accepted: list[str] = []
    for _ in range(at_most):
        try:
            accepted.append(witness.client.send(to, payload))
        except Overload:
            return accepted
    raise AssertionError(f"{at_most} messages of {len(payload)} bytes did not fill an outbox")


def ids_of(ops: Iterable[dict[str, Any]]) -> list[str]:
    """The ids of the messages among ops."""
    return [str(op["message"]) for op in ops if op["op"] == "message"]


def numbers_of(ops: Iterable[dict[str, Any]]) -> list[int]:
    """The numbers of the messages among ops."""
    return [_data(op)[0] for op in ops if op["op"] == "message"]


def _data(op: dict[str, Any]) -> Any:
    data = op["data"]
    return msgspec.json.decode(data) if isinstance(data, bytes) else data


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))
