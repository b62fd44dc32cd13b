"""Records: what they are as bytes (Q11)."""

from __future__ import annotations

import pytest

from chappe.errors import StorageError
from chappe.queues.record import (
    Death,
    Done,
    MessageType,
    Record,
    Registered,
    Removed,
    Tried,
    Unregistered,
    decode_records,
    encode_record,
)
from tests.queues.story import MADE, stored


def test_every_record_comes_back_from_its_bytes() -> None:  # Q11
    death = Death("too often", "g", 16, 7, 4, 1)
    records: list[Record] = [
        MADE,
        Removed(1),
        stored(4, 1, key="k", headers={"a": "b"}, tags=["t"], consumers=["x"], death=death),
        Done(1, 4, "g", [1, 3, 7, 7], 9),
        Tried(1, 4, "g", 5, 2),
        Registered(1, "g", "x", ["t"], {"a": "b"}, 5, expected=False, new=True),
        Unregistered(1, "g", "x"),
    ]
    body = b"".join(encode_record(record) for record in records)
    assert decode_records(body, len(records)) == records
    with pytest.raises(StorageError):
        decode_records(body[:-1], len(records))


def test_an_unknown_type_of_message_is_one_that_expects_a_reply() -> None:  # Q13
    assert [int(MessageType(kind)) for kind in (0, 1, 2, 3, 4)] == [0, 1, 2, 3, 4]
    assert [MessageType(kind) for kind in (5, -1, 99)] == [MessageType.REPLY_EXPECTED] * 3
