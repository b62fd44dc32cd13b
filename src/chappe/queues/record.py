"""Records: what a queue must not forget, one fact each, in the order in which it happened.

A queue's state is what its records say, taken one after the other (state.py). They travel as
msgpack arrays with a tag; tags and the order of fields are a format: add at the end, never change.

Lanes are numbered from 1. Two more hold what is not to be delivered now: dead letters, and delayed
messages until they are due. In each a message has a number of its own, from 1: its seq.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Union

import msgspec

from chappe.errors import StorageError
from chappe.queues.options import QueueOptions

DEAD_LANE = 0
DELAY_LANE = -1
# The readers of those two; no name that anybody may give begins like this.
DEAD_GROUP = "!dead"
DELAY_GROUP = "!delay"


# What a word costs besides its letters.
_WORD_BYTES = 64


class MessageType(IntEnum):
    """What a sender wants of a message (Q13)."""

    ONE_WAY = 0
    REPLY_EXPECTED = 1
    REQUEST_QUEUE = 2
    REGISTER = 3
    PULL = 4

    @classmethod
    def _missing_(cls, value: object) -> MessageType:
        return cls.REPLY_EXPECTED


class Death(msgspec.Struct, array_like=True, frozen=True):
    """Why a message is among the dead letters, and where it came from."""

    reason: str
    group: str
    attempts: int
    at_ms: int
    lane: int
    seq: int


class Record(msgspec.Struct, array_like=True, tag_field="record", gc=False):
    """Any record, of the queue with that number."""

    queue: int


class Made(Record, tag=1):
    """A queue was made, or has other options or more lanes now."""

    app: str
    address: str
    options: QueueOptions
    lanes: list[int]


class Removed(Record, tag=2):
    """A queue is no more."""


class Stored(Record, tag=3):
    """A message has its place in a lane."""

    lane: int
    seq: int
    id: int
    ts_ms: int
    sender: str
    payload: bytes
    binary: bool = False
    type: int = MessageType.REPLY_EXPECTED
    num: int | None = None
    key: str | None = None
    headers: dict[str, str] | None = None
    tags: list[str] | None = None
    # The consumers that are meant; None: all of them.
    consumers: list[str] | None = None
    producer: str | None = None
    producer_seq: int | None = None
    # In the delay lane: when it is to be delivered.
    due_ms: int | None = None
    death: Death | None = None
    # What key, headers, tags and consumers add to the bytes of the payload.
    extra: int = 0


class Done(Record, tag=4):
    """A group is done with messages of a lane: pairs of first and last, and their bytes."""

    lane: int
    group: str
    ranges: list[int]
    bytes: int = 0


class Tried(Record, tag=5):
    """A group may have been given a message so often; with 0, all up to it once."""

    lane: int
    group: str
    seq: int
    attempts: int = 0


class Registered(Record, tag=6):
    """A consumer belongs to a group, which wants only some messages.

    One that is `expected` was named by a message and never came: it has no consumers yet.
    """

    group: str
    consumer: str
    tags: list[str] | None = None
    headers: dict[str, str] | None = None
    since_ms: int = 0
    expected: bool = False
    # Whether it begins with what is sent from now on, instead of all that is there.
    new: bool = False


class Unregistered(Record, tag=7):
    """A consumer belongs to a group no more; without a name, the group itself is no more."""

    group: str
    consumer: str = ""


class Snapshot(Record, tag=8):
    """All that is known of a queue, in place of the records before it."""

    app: str
    address: str
    options: QueueOptions
    # What state.py makes of it.
    state: msgspec.Raw


class Moved(Record, tag=9):
    """A message that is still needed lies here now, so that old segments can go."""

    lane: int
    seq: int
    stored: bytes


def extra_bytes(
    key: str | None,
    headers: dict[str, str] | None,
    tags: list[str] | None,
    consumers: list[str] | None = None,
) -> int:
    """What these add to a message, about: what may be small and many must not be free."""
    words = [*(tags or ()), *(consumers or ()), *(headers or {}), *(headers or {}).values()]
    if key is not None:
        words.append(key)
    return sum(map(len, words)) + _WORD_BYTES * len(words)


AnyRecord = Union[Made, Removed, Stored, Done, Tried, Registered, Unregistered, Snapshot, Moved]

encode_record = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(list[AnyRecord])


def decode_records(body: bytes, count: int) -> list[AnyRecord]:
    """Read the records of a batch; raises StorageError."""
    try:
        return _decoder.decode(b"\xdd" + count.to_bytes(4, "big") + body)
    except msgspec.MsgspecError as error:
        raise StorageError(f"records that cannot be read: {error}") from None


def stored_in(record: AnyRecord) -> Stored | None:
    """The message that a record brings, if it brings one."""
    if type(record) is Stored:
        return record
    if isinstance(record, Moved):
        (moved,) = decode_records(record.stored, 1)
        return moved if isinstance(moved, Stored) else None
    return None
