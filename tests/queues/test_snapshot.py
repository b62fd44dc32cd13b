"""Snapshots: a state told in one record, and back (Q11)."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings

from chappe.errors import StorageError
from chappe.queues.record import Snapshot, decode_records, encode_record
from chappe.queues.snapshot import restore, snapshot_of
from tests.queues.story import LIMITS, OPTIONS, SEEDS, Story, made, told


@settings(max_examples=300, deadline=None)
@given(SEEDS)
def test_a_snapshot_anywhere_stands_for_the_records_before_it(seed: int) -> None:
    story = Story(seed)
    records = story.records()
    cut = story.random.randint(0, len(records))
    whole = made(*records)
    snapshot = snapshot_of(made(*records[:cut]))
    (read,) = decode_records(encode_record(snapshot), 1)
    assert isinstance(read, Snapshot)
    state = restore(read)
    for record in records[cut:]:
        state.apply(record, LIMITS)
    assert told(state) == told(whole)


@pytest.mark.parametrize("raw", [b"\xc1", b"\x90", msgspec.msgpack.encode([1] * 7)])
def test_a_snapshot_that_cannot_be_read_says_so(raw: bytes) -> None:
    snapshot = Snapshot(1, "default", "queue:jobs", OPTIONS, msgspec.Raw(raw))
    with pytest.raises(StorageError, match="queue:jobs"):
        restore(snapshot)
