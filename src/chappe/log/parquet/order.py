"""What a node asks the copying process for, and what that answers: lines of JSON."""

from __future__ import annotations

import msgspec

from chappe.log.parquet.retention import Retention

# An error may quote what it met.
REASON_MAX = 1_000
# What a journal holds.
QUEUES = "queues"
EVENTS = "events"


class Order(msgspec.Struct, frozen=True):
    """A sealed segment that is to be copied: the batches from `base` up to `end`."""

    # Whose journal it is of: a broker's, or a node's.
    broker: str
    path: str
    base: int
    end: int
    kind: str = QUEUES
    # Where to; the process knows if it is not said.
    folder: str = ""
    # What is kept of the files that are there.
    retention: Retention = Retention()


class Copied(msgspec.Struct, omit_defaults=True):
    """A segment was copied, or why it was not."""

    # Rows of either table.
    messages: int = 0
    records: int = 0
    # Places that could not be read, and were passed over.
    damaged: int = 0
    # Whether it had been copied before.
    before: bool = False
    error: str | None = None


encode_line = msgspec.json.Encoder().encode
decode_order = msgspec.json.Decoder(Order).decode
decode_copied = msgspec.json.Decoder(Copied).decode
