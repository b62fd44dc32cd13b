"""What nodes say to each other: golden bytes, round trips, and refusals of all else."""

from __future__ import annotations

import typing
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.errors import RemoteProtocolError
from chappe.message import Message
from chappe.wire.node import (
    FORGET_REFUSED,
    OPS,
    RETURN_REFUSED,
    Brought,
    Carry,
    Changed,
    Departed,
    Find,
    Forward,
    Found,
    FromHome,
    Handed,
    Interim,
    Introduce,
    Known,
    Left,
    Missed,
    NodeOp,
    Records,
    Recover,
    Recovered,
    Returned,
    Routes,
    Settled,
    Taken,
    ToHome,
    Unwatch,
    Visit,
    VisitOver,
    VisitPart,
    Watch,
    Watched,
    decode_node_ops,
    encode_node_ops,
)
from chappe.wire.replica import (
    Appended,
    Batches,
    Follow,
    Following,
    Inquire,
    Invite,
    Masters,
    Standing,
    Superseded,
)

MESSAGE = Message(7, "user:a", "user:b", 3, b"1")
PACKED = b"\x98\x21\x07\xa6user:a\xa6user:b\x03\xc4\x011\xc2\x00"
# The format itself, as bytes: nodes of two releases live side by side.
GOLDEN = [
    (Forward("shop", 5, [MESSAGE]), b"\x94\x40\xa4shop\x05\x91" + PACKED),
    (Taken(5, 2, 1), b"\x94\x41\x05\x02\x01"),
    (
        Returned(5, "shop", "unreachable", "gone", MESSAGE),
        b"\x97\x42\x05\xa4shop\xabunreachable\xa4gone" + PACKED + b"\xc2",
    ),
    (
        ToHome("shop", 5, [MESSAGE], False, True),
        b"\x96\x43\xa4shop\x05\x91" + PACKED + b"\xc2\xc3",
    ),
    (FromHome("shop", [MESSAGE]), b"\x93\x44\xa4shop\x91" + PACKED),
    (Routes(4, "shop", ["user:a"], True), b"\x95\x45\x04\xa4shop\x91\xa6user:a\xc3"),
    (
        Changed(4, [("shop", "user:a")], [], 9),
        b"\x95\x46\x04\x91\x92\xa4shop\xa6user:a\x90\x09",
    ),
    (Find(1, "shop", "user:a"), b"\x94\x48\x01\xa4shop\xa6user:a"),
    (Found(1, True), b"\x93\x49\x01\xc3"),
    (Watch("shop", ["topic:t"]), b"\x93\x4a\xa4shop\x91\xa7topic:t"),
    (Unwatch("shop", ["topic:t"]), b"\x93\x4b\xa4shop\x91\xa7topic:t"),
    (Watched("shop", "topic:t", "e", 2), b"\x95\x4c\xa4shop\xa7topic:t\xa1e\x02"),
    (Recover(1, "shop", "topic:t", "e", 2), b"\x96\x4d\x01\xa4shop\xa7topic:t\xa1e\x02"),
    (Recovered(1, "e", 2, True, []), b"\x96\x4e\x01\xa1e\x02\xc3\x90"),
    (
        Introduce("s.n", "shop", "user:a", {"send": ["*"]}),
        b"\x95\x4f\xa3s.n\xa4shop\xa6user:a\x81\xa4send\x91\xa1*",
    ),
    (Carry("s.n", b"\x01"), b"\x93\x50\xa3s.n\xc4\x01\x01"),
    (Brought("s.n", b"\x01"), b"\x93\x51\xa3s.n\xc4\x01\x01"),
    (Departed("s.n"), b"\x92\x52\xa3s.n"),
    (Records([b"\x01"]), b"\x92\x53\x91\xc4\x01\x01"),
    (Visit(1, b"\x01"), b"\x93\x54\x01\xc4\x01\x01"),
    (VisitPart(1, b"\x01", True), b"\x94\x55\x01\xc4\x01\x01\xc3"),
    (VisitOver(1), b"\x92\x56\x01"),
    (
        Handed("shop", [("queue:q", b"\x01")]),
        b"\x93\x57\xa4shop\x91\x92\xa7queue:q\xc4\x01\x01",
    ),
    (Left([("shop", "user:a", 9)]), b"\x92\x58\x91\x93\xa4shop\xa6user:a\x09"),
    (Known([("shop", "user:a")]), b"\x92\x59\x91\x92\xa4shop\xa6user:a"),
    (Missed("shop", "topic:t", 3), b"\x94\x5a\xa4shop\xa7topic:t\x03"),
    (Settled(5), b"\x92\x5b\x05"),
    (Interim("shop", ["topic:t"]), b"\x93\x5c\xa4shop\x91\xa7topic:t"),
    (Masters([("n1", 3)]), b"\x92\x5d\x91\x92\xa2n1\x03"),
    (Invite("n1", 3), b"\x93\x5e\xa2n1\x03"),
    (Follow("n1", 3, [(2, 0)], 0, 9), b"\x96\x5f\xa2n1\x03\x91\x92\x02\x00\x00\x09"),
    (Following("n1", 3, 7, 9, True, 2), b"\x97\x60\xa2n1\x03\x07\x09\xc3\x02"),
    (Batches("n1", 3, 7, b"\x01", True, 5), b"\x97\x61\xa2n1\x03\x07\xc4\x01\x01\xc3\x05"),
    (Appended("n1", 3, 7, 9, True), b"\x96\x62\xa2n1\x03\x07\x09\xc3"),
    (Superseded("n1", 4), b"\x93\x63\xa2n1\x04"),
    (Inquire(1, "n1"), b"\x93\x64\x01\xa2n1"),
    (Standing(1, "n1", 3, "n2", 2, 9, True), b"\x98\x65\x01\xa2n1\x03\xa2n2\x02\x09\xc3"),
]

_texts = st.text(max_size=30)
_numbers = st.integers(-(2**63), 2**64 - 1)
_messages = st.builds(
    Message,
    id=st.integers(0, 2**63 - 1),
    sender=_texts,
    to=_texts,
    ts_ms=st.integers(0, 2**53),
    payload=st.binary(max_size=50),
    binary=st.booleans(),
    offset=st.integers(0, 2**63 - 1),
)


def _values(kind: Any) -> st.SearchStrategy[Any]:
    """Anything that a field of that type may hold."""
    if kind is Message:
        return _messages
    plain = {str: _texts, int: _numbers, bool: st.booleans(), bytes: st.binary(max_size=50)}
    if kind in plain:
        return plain[kind]
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is list:
        return st.lists(_values(inner[0]), max_size=4)
    if origin is dict:
        return st.dictionaries(_values(inner[0]), _values(inner[1]), max_size=4)
    if origin is tuple:
        return st.tuples(*map(_values, inner))
    assert type(None) in inner, f"a field of a type that is not known here: {kind}"
    return st.none() | _values(next(one for one in inner if one is not type(None)))


def _ops_of(kind: type[NodeOp]) -> st.SearchStrategy[NodeOp]:
    hints = typing.get_type_hints(kind)
    fields = {name: _values(hints[name]) for name in kind.__struct_fields__}
    return st.builds(kind, **fields)


ops = st.one_of([_ops_of(kind) for kind in OPS])


@pytest.mark.parametrize(("op", "data"), GOLDEN, ids=lambda value: type(value).__name__)
def test_the_bytes_of_each_op_are_fixed(op: NodeOp, data: bytes):
    assert encode_node_ops([op]) == b"\x91" + data
    assert decode_node_ops(b"\x91" + data) == [op]


def test_what_an_older_or_a_newer_node_says_to_a_home_is_read():
    older = b"\x91\x95\x43\xa4shop\x05\x91" + PACKED + b"\xc3"
    assert decode_node_ops(older) == [ToHome("shop", 5, [MESSAGE], forwarded=True)]
    newer = b"\x91\x97\x43\xa4shop\x05\x91" + PACKED + b"\xc2\xc3\x01"
    assert decode_node_ops(newer) == [ToHome("shop", 5, [MESSAGE], silent=True)]


def test_every_op_has_its_bytes_written_down_and_a_code_of_its_own():
    assert [type(op) for op, _ in GOLDEN] == list(OPS)
    codes = [kind.__struct_config__.tag for kind in OPS]
    # Above all codes that clients use: neither is ever taken for the other.
    assert len(set(codes)) == len(codes)
    assert min(codes) == 64
    assert RETURN_REFUSED == 0
    assert FORGET_REFUSED < 0


@given(st.lists(ops, max_size=6))
def test_what_is_written_is_read_as_the_same_in_order(said: list[NodeOp]):
    read = decode_node_ops(encode_node_ops(said))
    assert read == said
    assert [type(op) for op in read] == [type(op) for op in said]


@given(st.lists(ops, min_size=1, max_size=3), st.data())
def test_a_frame_that_ends_early_is_refused(said: list[NodeOp], data: st.DataObject):
    whole = encode_node_ops(said)
    end = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(RemoteProtocolError):
        decode_node_ops(whole[:end])


@given(st.lists(ops, min_size=1, max_size=3), st.binary(min_size=1, max_size=5))
def test_a_frame_with_something_behind_it_is_refused(said: list[NodeOp], more: bytes):
    with pytest.raises(RemoteProtocolError):
        decode_node_ops(encode_node_ops(said) + more)


@given(st.binary(max_size=200))
def test_garbage_is_read_or_refused_and_nothing_else(data: bytes):
    try:
        decode_node_ops(data)
    except RemoteProtocolError as error:
        assert len(error.reason) <= 200  # noqa: PT017, not every garbage is refused


@given(st.lists(ops, min_size=1, max_size=3), st.data())
def test_a_byte_that_was_changed_is_read_or_refused(said: list[NodeOp], data: st.DataObject):
    whole = bytearray(encode_node_ops(said))
    whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        read = decode_node_ops(bytes(whole))
    except RemoteProtocolError:
        return
    assert all(isinstance(op, OPS) for op in read)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc0",  # no array
        b"\x91\x91\x47",  # a code that nobody has
        b"\x91\x93\x04\x01\xa6user:b",  # a client's op
        b"\x91\x92\x52\x01",  # a number for a session
        b"\x91\x91\x52",  # a field is missing
        b"\x91\x92\x52\xa1\xff",  # a session that is not UTF-8
        b"\xdd\xff\xff\xff\xff",  # four thousand million ops, and not one
        b"\x91" * 100_000,  # deeper than anything may be
        b"\x91\x94\x40\xa4shop\x05\xdd\xff\xff\xff\xff",  # as many messages
    ],
)
def test_what_no_node_says_is_refused(data: bytes):
    with pytest.raises(RemoteProtocolError):
        decode_node_ops(data)


def test_fields_that_a_later_release_adds_are_ignored():
    """Nodes of two releases live side by side: whoever knows less reads what it knows."""
    assert decode_node_ops(msgspec.msgpack.encode([[82, "s.n", "later"]])) == [Departed("s.n")]
    # And what an older one leaves out at the end has its default.
    assert decode_node_ops(msgspec.msgpack.encode([[65, 5, 2]])) == [Taken(5, 2, 0)]
