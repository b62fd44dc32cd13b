"""The two tables: what queues were given, and what became of it.

Both are split by the hour (UTC) in which a batch was written. Names that SQL reserves (from, group,
at) are avoided; columns are added at the end, never changed.
"""

from __future__ import annotations

import pyarrow as pa

_TIME = pa.timestamp("ms", tz="UTC")

# One row for each place that a message got in a lane: of a delayed one when it was due, of a
# replayed letter once more.
MESSAGES = pa.schema(
    [
        pa.field("broker", pa.string(), nullable=False),
        # The batch's position in the broker's journal.
        pa.field("lsn", pa.int64(), nullable=False),
        pa.field("written_at", _TIME, nullable=False),
        # Of the app and queue nothing is known when the segment's beginning is damaged.
        pa.field("app", pa.string()),
        pa.field("queue", pa.string()),
        pa.field("lane", pa.int32(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("message", pa.int64(), nullable=False),
        pa.field("ts", _TIME, nullable=False),
        pa.field("sender", pa.string(), nullable=False),
        pa.field("type", pa.int32(), nullable=False),
        pa.field("num", pa.int64()),
        pa.field("key", pa.string()),
        pa.field("headers", pa.map_(pa.string(), pa.string())),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("consumers", pa.list_(pa.string())),
        pa.field("producer", pa.string()),
        pa.field("producer_seq", pa.int64()),
        # Bytes as they were sent if `binary`, else JSON.
        pa.field("payload", pa.binary(), nullable=False),
        pa.field("binary", pa.bool_(), nullable=False),
    ]
)

# One row for each thing that happened: made, removed, registered, unregistered, delayed, dead,
# tried (given to a group, so often at most; without `first_seq` all up to the last, once), done.
RECORDS = pa.schema(
    [
        pa.field("broker", pa.string(), nullable=False),
        pa.field("lsn", pa.int64(), nullable=False),
        pa.field("written_at", _TIME, nullable=False),
        pa.field("app", pa.string()),
        pa.field("queue", pa.string()),
        pa.field("event", pa.string(), nullable=False),
        pa.field("lane", pa.int32()),
        pa.field("first_seq", pa.int64()),
        pa.field("last_seq", pa.int64()),
        pa.field("group_name", pa.string()),
        pa.field("consumer", pa.string()),
        pa.field("attempts", pa.int64()),
        pa.field("message", pa.int64()),
        pa.field("reason", pa.string()),
        pa.field("due", _TIME),
        # Its number among the dead letters (lane 0) or the delayed messages (lane -1).
        pa.field("place", pa.int64()),
    ]
)
