"""Batches: round trips, damage, bounds."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from chappe.log.batch import (
    BODY_BYTES_MAX,
    HEADER_BYTES,
    Batch,
    Damaged,
    Torn,
    encode_batch,
    peek_lsn,
    peek_ts,
    read_batch,
)

U63 = st.integers(0, 2**63 - 1)
VALUES = st.lists(st.one_of(st.integers(-(2**31), 2**31), st.binary(max_size=50), st.text()))


def encode(values: list[object], lsn: int = 0, epoch: int = 1, first: bool = False) -> bytes:
    records = [msgspec.msgpack.encode(value) for value in values]
    return encode_batch(records, lsn=lsn, epoch=epoch, ts_ms=7, count=len(records), first=first)


@given(VALUES, U63, U63, U63, st.booleans(), st.binary(max_size=20), st.binary(max_size=20))
def test_what_was_encoded_is_read_wherever_it_lies(values, lsn, epoch, ts_ms, first, before, after):
    records = [msgspec.msgpack.encode(value) for value in values]
    data = encode_batch(records, lsn=lsn, epoch=epoch, ts_ms=ts_ms, count=len(records), first=first)
    batch = read_batch(before + data + after, len(before))
    assert isinstance(batch, Batch)
    assert (batch.lsn, batch.epoch, batch.ts_ms, batch.first) == (lsn, epoch, ts_ms, first)
    assert batch.data == data
    assert batch.end == lsn + len(data)
    assert batch.body == b"".join(records)
    assert batch.count == len(values)
    assert msgspec.msgpack.decode(batch.array) == values
    assert peek_lsn(before + data, len(before)) == lsn
    assert peek_ts(data) == ts_ms


def test_a_batch_that_is_cut_anywhere_is_torn():
    data = encode([1, b"two", "three"])
    for size in range(len(data)):
        part = read_batch(data[:size])
        assert isinstance(part, Torn)
        assert size < part.needed <= len(data)


def test_no_flipped_bit_goes_unseen():
    data = encode([1, b"two", "three"], lsn=5)
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        assert isinstance(read_batch(bytes(damaged)), Damaged | Torn), bit


@given(st.binary(max_size=200))
def test_garbage_is_no_batch(garbage):
    assert isinstance(read_batch(garbage), Damaged | Torn)


def test_a_length_beyond_the_limit_is_not_believed():
    data = bytearray(encode([1]))
    data[32:36] = (BODY_BYTES_MAX + 1).to_bytes(4)
    assert isinstance(read_batch(bytes(data)), Damaged)
    data[32:36] = BODY_BYTES_MAX.to_bytes(4)
    assert read_batch(bytes(data)) == Torn(HEADER_BYTES + BODY_BYTES_MAX)


def test_more_records_than_bytes_are_not_believed():
    data = bytearray(encode([1, 2]))
    data[41:45] = (3).to_bytes(4)
    assert isinstance(read_batch(bytes(data)), Damaged)
    assert msgspec.msgpack.decode(read_batch(encode([1, 2])).array) == [1, 2]  # type: ignore[union-attr]
