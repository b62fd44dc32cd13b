"""Records: what of the events is written to the log, many events at once.

    chunk:    [version, node, boot, serial, [run, run, ..],
               marks, [telling, ..], [life, ..], {broker: epoch}]
    run:      [kind, count, {column: value for all}, {column: values, one for each}]
    marks:    [time, {broker: position}]
    telling:  [kind, message, group]
    life:     [boot, serial, time, home]

A run is one or more events of one kind that happened together, such as a run of messages to one
receiver: what is equal for all of them is said once. Columns are known by their place in the
schema. The events of a chunk are numbered from its serial on.

Ids of messages that were given one after another are not told one by one: FOLLOWING stands for all
of them, by the first.

With each sign of life a chunk says up to where the journals of queues were told of, when that was,
and by broker in which epoch its journal was written; others say nothing of it. What was told since,
and what is known of lives, a segment begins with (opening.py), and few others say. What is missing
at the end of a chunk is empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from chappe.events.schema import NAMES

# Instead of a column: the id of the first message, when each of the others follows the one before.
FOLLOWING = -1

AT, APP, MESSAGE, LABEL, SENDER, TARGET, CAME, CAME_FROM, WENT_TO, N, BYTES = map(
    NAMES.index,
    (
        *("at", "app", "message", "label", "sender", "target", "came", "came_from", "went_to"),
        *("n", "bytes"),
    ),
)
SESSION, EDGE, GROUP, ATTEMPT, DUE, REASON, PEER, AHEAD, ROUND_TRIP, SHARE = map(
    NAMES.index,
    (
        *("session", "edge", "group_name", "attempt", "due", "reason", "peer", "ahead"),
        *("round_trip", "share"),
    ),
)
ROLE, TAKEN_AS = NAMES.index("role"), NAMES.index("taken_as")

# When, and by broker: all below that position of its journal is told.
Marks = tuple[int, dict[str, int]]

# Kind, message and group of what was told of a journal.
Telling = tuple[str, int, str]

Run = tuple[str, int, dict[int, Any], dict[int, Sequence[Any]]]


class Life(msgspec.Struct, array_like=True, gc=False):
    """What the log knows of a life of its node."""

    boot: int
    # The number of its next event: the log has all before.
    serial: int
    # When it last said that all before is written down; when it began, if it never did.
    alive_at: int
    # Whether the log has all that it will ever get of this life's slate.
    home: bool = False


class Chunk(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Events of one life of a node, in the order in which they were told."""

    v: int
    node: str
    boot: int
    serial: int
    runs: list[Run]
    marks: Marks | None = None
    # With marks: what was told since of the journals that they are of.
    told: list[Telling] = []
    lives: list[Life] = []
    # With marks: by broker, the epoch in which its journal was written then.
    epochs: dict[str, int] = {}


encode_chunk = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(list[Chunk])


def decode_chunks(array: bytes | memoryview) -> list[Chunk]:
    """Read a msgpack array of chunks; raises msgspec.MsgspecError."""
    return _decoder.decode(array)


def count_events(chunk: Chunk) -> int:
    """How many events a chunk tells of."""
    return sum(count for _kind, count, _shared, _each in chunk.runs)


def rows_of(chunk: Chunk) -> Iterator[dict[str, Any]]:
    """Each event of a chunk, as a row of those columns that it has: for people and for tests."""
    serial = chunk.serial
    told = {"v": chunk.v, "node": chunk.node, "boot": chunk.boot, "share": 1.0}
    for kind, count, shared, each in chunk.runs:
        for place in range(count):
            row = {**told, "kind": kind, "serial": serial}
            for column, value in shared.items():
                if column == FOLLOWING:
                    row["message"] = value + place
                else:
                    row[NAMES[column]] = value
            row |= {NAMES[column]: values[place] for column, values in each.items()}
            serial += 1
            yield row
