"""Parcels and pieces: what goes in comes out, in order, and nothing is kept beyond a bound."""

from __future__ import annotations

import math
import tracemalloc

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.wire import parcel
from chappe.wire.datagram import OVERHEAD_BYTES, BadDatagram, Kind
from chappe.wire.parcel import APART, PART_BYTES_MIN, PARTIAL_BYTES, PARTIALS_MAX, Packer, Pieces
from chappe.wire.rooms import OPS_MAX, join_room_ops

SIZE = 512
BODY = SIZE - OVERHEAD_BYTES
PART = BODY - 8
# Encoded as an op is: one msgpack value each.
blobs = st.integers(0, 3 * BODY).map(lambda size: msgspec.msgpack.encode(b"x" * size))


def pieces(op_bytes_max: int = 100_000, bytes_max: int = 1_000_000, seconds: float = 2.0) -> Pieces:
    return Pieces(op_bytes_max=op_bytes_max, bytes_max=bytes_max, seconds=seconds)


def piece(piece_id: int, index: int, number: int, part: bytes = b"x" * PART) -> bytes:
    head = piece_id.to_bytes(4, "big") + index.to_bytes(2, "big") + number.to_bytes(2, "big")
    return head + part


def split(op: bytes, packer: Packer | None = None) -> list[bytes]:
    packed = list((packer or Packer(SIZE)).pack([op]))
    assert {kind for kind, _ in packed} == {Kind.PIECE}
    return [body for _, body in packed]


def cause(some: Pieces, body: bytes, now: float = 0.0) -> str:
    with pytest.raises(BadDatagram) as caught:
        some.take(1, body, now)
    return caught.value.cause


def unpack(packed, into: Pieces) -> list[bytes]:
    """The ops of all bodies, encoded, in order."""
    ops = []
    for kind, body in packed:
        if kind == Kind.PARCEL:
            ops += [msgspec.msgpack.encode(value) for value in msgspec.msgpack.decode(body)]
        elif (whole := into.take(1, body, 0.0)) is not None:
            ops.append(whole)
    return ops


@given(st.lists(blobs, max_size=40), st.sampled_from([SIZE, 600, 1400]))
def test_ops_come_out_as_they_went_in_and_no_datagram_is_too_large(ops, size):
    packed = list(Packer(size).pack(ops))
    assert all(0 < len(body) <= size - OVERHEAD_BYTES for _, body in packed)
    into = pieces()
    assert unpack(packed, into) == ops
    assert len(into) == into.bytes == 0


@given(st.lists(st.integers(1, 60), max_size=100))
def test_no_two_parcels_would_fit_into_one(sizes):
    bodies = [body for _, body in Packer(SIZE).pack([b"\xc0" * size for size in sizes])]
    assert all(len(one) + 60 > BODY for one in bodies[:-1])


def test_what_is_to_be_apart_is_in_another_datagram():
    ops = [APART, b"a", b"b", APART, b"c", APART, APART, b"d", APART]
    packed = [body for _, body in Packer(1400).pack(ops)]
    assert packed == [join_room_ops(part) for part in ([b"a", b"b"], [b"c"], [b"d"])]


@pytest.mark.parametrize(("size", "kind"), [(BODY - 3, Kind.PARCEL), (BODY - 2, Kind.PIECE)])
def test_an_op_is_split_only_if_it_does_not_fit(size, kind):
    packer = Packer(SIZE)
    assert next(one for one, _ in packer.pack([b"\xc0" * size])) is kind
    assert (packer.pieces(size) == 1) == (kind is Kind.PARCEL)


def test_a_parcel_has_no_more_ops_than_an_array_may():
    packed = list(Packer(65_000).pack([b"\xc0"] * (OPS_MAX + 1)))
    assert [len(msgspec.msgpack.decode(body)) for _, body in packed] == [OPS_MAX, 1]


def test_pieces_are_laid_out_as_written_down():
    packer = Packer(SIZE)
    op = bytes(range(256)) * 4
    first, second = split(op, packer), split(op, packer)
    assert first == [piece(0, at, 3, op[at * PART : (at + 1) * PART]) for at in range(3)]
    assert [body[:8] for body in second] == [piece(1, at, 3, b"") for at in range(3)]


def test_ids_begin_anew_after_the_last(monkeypatch):
    monkeypatch.setattr(parcel, "_IDS", 2)
    packer = Packer(SIZE)
    assert [split(b"x" * 600, packer)[0][3] for _ in range(4)] == [0, 1, 0, 1]


def test_the_largest_op_needs_no_more_pieces_than_can_be_counted():
    packer = Packer(SIZE)
    assert packer.pieces(packer.op_bytes_max) == 65_535
    assert packer.pieces(packer.op_bytes_max + 1) == 65_536


@given(st.lists(st.integers(BODY, 10 * BODY), min_size=1, max_size=5), st.randoms())
def test_pieces_may_come_in_any_order_and_from_many(sizes, rng):
    packers = {sender: Packer(SIZE) for sender in (1, 2**64 - 1)}
    ops = {bytes([at]) * size for at, size in enumerate(sizes)}
    sent = [(who, body) for who in packers for op in ops for body in split(op, packers[who])]
    rng.shuffle(sent)
    into = pieces()
    whole = [(who, op) for who, body in sent if (op := into.take(who, body, 0.0)) is not None]
    assert sorted(whole) == sorted((who, op) for who in packers for op in ops)
    assert len(into) == into.bytes == into.given_up == 0


@given(
    st.lists(
        st.tuples(
            st.integers(1, 3),
            st.builds(
                piece,
                st.integers(0, 2),
                st.integers(0, 4),
                st.integers(0, 4) | st.just(65_535),
                st.binary(max_size=20) | st.integers(250, 1200).map(bytes),
            )
            | st.binary(max_size=30),
        ),
        max_size=40,
    )
)
def test_garbage_raises_its_own_error_and_takes_no_more_than_the_bound(some):
    into = pieces(op_bytes_max=2000, bytes_max=4000)
    for now, (sender, body) in enumerate(some):
        try:
            whole = into.take(sender, body, now / 4)
        except BadDatagram as bad:
            assert bad.cause in ("garbage", "oversize")  # noqa: PT017
        else:
            assert whole is None or 0 < len(whole) <= 2000
        assert 0 <= into.bytes <= 4000
        assert (into.bytes == 0) == (len(into) == 0) == (into.due == math.inf)
    into.expire(1000.0)
    assert len(into) == into.bytes == 0


@pytest.mark.parametrize(
    "body",
    [
        b"",
        piece(1, 0, 2, b""),
        piece(1, 0, 0),
        piece(1, 0, 1),
        piece(1, 2, 2),
        piece(1, 0, 2, b"x" * (PART_BYTES_MIN - 1)),
    ],
    ids=["nothing", "no-part", "none", "alone", "beyond", "small"],
)
def test_what_is_no_piece_is_refused(body):
    into = pieces()
    assert cause(into, body) == "garbage"
    assert len(into) == 0


def test_pieces_that_contradict_each_other_are_refused():
    into = pieces()
    into.take(1, piece(7, 0, 3), 0.0)
    assert cause(into, piece(7, 1, 4)) == "garbage"
    assert cause(into, piece(7, 0, 3)) == "garbage"
    assert len(into) == 1


def test_an_op_may_be_as_large_as_the_bound_and_no_larger():
    into = pieces(op_bytes_max=3 * PART)
    assert unpack([(Kind.PIECE, body) for body in split(b"x" * 3 * PART)], into)
    first, second, third, fourth = split(b"x" * (3 * PART + 1))
    for body in (first, second, third):
        assert into.take(1, body, 0.0) is None
    assert cause(into, fourth) == "oversize"
    assert len(into) == into.bytes == 0
    assert into.given_up == 1


def test_more_pieces_than_the_bound_could_hold_are_refused_at_the_first():
    into = pieces(op_bytes_max=10 * PART_BYTES_MIN)
    assert into.take(1, piece(1, 0, 11), 0.0) is None
    assert cause(into, piece(2, 0, 12)) == "oversize"


def test_an_op_of_many_pieces_takes_memory_only_for_those_that_came():
    into = pieces(op_bytes_max=2**30, bytes_max=2**30)
    tracemalloc.start()
    try:
        into.take(1, piece(1, 65_534, 65_535, b"x"), 0.0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10_000


def test_the_oldest_of_all_is_given_up_when_there_is_no_more_room():
    into = pieces(bytes_max=2 * (PARTIAL_BYTES + PART))
    for sender in (1, 2, 3):
        into.take(sender, piece(1, 0, 2), 0.0)
    assert len(into) == 2
    assert into.given_up == 1
    assert into.take(1, piece(1, 1, 2), 0.0) is None
    assert into.take(3, piece(1, 1, 2), 0.0) is not None


def test_the_oldest_of_a_sender_is_given_up_when_it_has_too_many():
    into = pieces(bytes_max=10**8)
    into.take(2, piece(1, 0, 2), 0.0)
    for number in range(PARTIALS_MAX + 1):
        into.take(1, piece(number, 0, 2), 0.0)
    assert len(into) == 1 + PARTIALS_MAX
    assert into.take(1, piece(PARTIALS_MAX, 1, 2), 0.0) is not None
    assert into.take(2, piece(1, 1, 2), 0.0) is not None
    assert into.take(1, piece(0, 1, 2), 0.0) is None


def test_what_is_not_whole_in_time_is_given_up():
    into = pieces(seconds=2.0)
    into.take(1, piece(1, 0, 2), 10.0)
    into.take(1, piece(2, 0, 2), 11.0)
    assert into.due == 12.0
    into.expire(11.9)
    assert len(into) == 2
    into.expire(12.0)
    assert (len(into), into.due, into.given_up) == (1, 13.0, 1)
    assert into.take(1, piece(2, 1, 2), 12.0) is not None


def test_a_sender_that_is_forgotten_leaves_nothing():
    into = pieces()
    for sender in (1, 2):
        for number in range(3):
            into.take(sender, piece(number, 0, 2), 0.0)
    into.forget(1)
    into.forget(9)
    assert len(into) == 3
    assert into.take(2, piece(0, 1, 2), 0.0) is not None
