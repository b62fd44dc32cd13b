"""The schemas of all tables, for Spark, Delta and Arrow alike.

Written as Spark's own types, as Spark writes the files; Arrow's and Delta's follow from them. Times
are long microseconds since 1970. `hour` is the partition of every table.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from chappe.events.schema import COLUMNS, NAMES

_TYPES: Final[dict[str, DataType]] = {
    "int": IntegerType(),
    "long": LongType(),
    "double": DoubleType(),
    "string": StringType(),
    "strings": ArrayType(StringType()),
    "bool": BooleanType(),
}


def _struct(text: str) -> StructType:
    """A struct from `name:type name:type ...`."""
    pairs = (word.split(":") for word in text.split())
    return StructType([StructField(name, _TYPES[type_]) for name, type_ in pairs])


# As nodes write it; whatever a file says of null, a row may lack anything until it is checked.
EVENT = StructType([StructField(column.name, _TYPES[column.type]) for column in COLUMNS])

# What an event says of a message, once it is known which message. `at` and `came` are as the node
# told them; plus `shift` they are by the clock of all.
_HOP_NAMES = (
    *("kind", "node", "boot", "serial", "at", "target", "came", "came_from", "went_to"),
    *("n", "bytes", "session", "group_name", "attempt", "due", "reason", "role", "taken_as"),
    *("job", "client", "offline", "expires"),
)
HOP = StructType([EVENT[name] for name in _HOP_NAMES] + [StructField("shift", LongType())])
HOP_NAMES = tuple(field.name for field in HOP)

# Of these an event of a message is made again.
MESSAGE_NAMES = ("message", "label", "app", "sender", "share", *_HOP_NAMES)
_HOUR = StructField("hour", StringType())
_BUCKETS = ArrayType(_struct("bucket:int count:long"))


def _table(text: str) -> StructType:
    return StructType([_HOUR, *_struct(text)])


_PATH = StructType(
    [
        *_table(
            "family:string app:string message:long label:string sender:string target:string "
            "born:long stored:long ready:long lent:long delivered:long ended:long receivers:long "
            "share:double open:bool suspect:bool vain:bool cancelled:bool "
            "first_at:long last_at:long"
        ),
        StructField("hops", ArrayType(HOP)),
    ]
)

TABLES: Final[dict[str, StructType]] = {
    "ledger": _table("run:long folder:string file:string bytes:long rows:long at:long"),
    # Which hours were forgotten, and after which run.
    "forgotten": _table("run:long before:long"),
    # Files that nobody can read, and which run would have taken them.
    "spoiled": _table("run:long file:string problem:string"),
    "quarantine": _table("problem:string file:string row:string"),
    "events": StructType([_HOUR, *EVENT]),
    "clocks": _table("node:string window:long reference:string shift:long"),
    "paths": _PATH,
    # Copies of those paths that the audit looks at, without a look at all others.
    "odd": _PATH,
    # What happened in queues: `window` is of the event, `hour` of the message.
    "flows": _table(
        "app:string queue:string what:string window:long bucket:int count:long frontier:long "
        "max:long"
    ),
    # What each process told of itself in an hour, the queues that it went on with, or removed.
    "lives": StructType(
        [
            *_table(
                "node:string boot:long began:long alive:long stopped:long gone:long missed:long"
            ),
            StructField("recovered", ArrayType(_struct("app:string target:string at:long"))),
            StructField("removed", ArrayType(_struct("app:string target:string at:long"))),
        ]
    ),
    "stays": _table("app:string edge:string node:string boot:long opened:long closed:long"),
    "latency": StructType(
        [
            *_table(
                "app:string family:string hop:string role:string window:long count:long "
                "scaled:double p50:double p90:double p99:double p999:double max:long"
            ),
            StructField("buckets", _BUCKETS),
        ]
    ),
    "delivery": _table(
        "app:string family:string window:long messages:long delivered:long in_time:long "
        "scaled:double ratio:double ratio_in_time:double"
    ),
    "links": _table(
        "node:string peer:string role:string window:long handed:long arrived:long success:double "
        "delay_p50:double delay_p99:double beats:long round_trip:long ahead:long "
        "ups:long downs:long down_us:long probes:long failed:long probe_p50:long probe_p99:long"
    ),
    "rooms": _table(
        "app:string room:string window:long messages:long scaled:double deliveries:long "
        "counted:long rate:double members:long gateways:long partition:int share:double hot:bool"
    ),
    "room_load": _table(
        "node:string partition:int window:long messages:long copies:long rooms:long members:long "
        "share:double imbalance:double"
    ),
    "jobs": StructType(
        [
            *_table(
                "app:string job:string note:string target:string window:long born:long "
                "expires:long aimed:long sent:long arrived:long clicked:long offline:long "
                "dropped:long withdrawn:long waiting:long sent_ratio:double arrived_ratio:double "
                "clicked_ratio:double p50:double p90:double p99:double max:long"
            ),
            StructField("buckets", _BUCKETS),
        ]
    ),
    "queues": _table(
        "app:string queue:string window:long stored:long lent:long acked:long returned:long "
        "died:long cancelled:long purged:long replayed:long lag:long frontier:long "
        "age_p50:double age_p99:double age_max:long"
    ),
    "sessions": _table(
        "app:string edge:string window:long opened:long closed:long reconnects:long online:long "
        "churn:double duration_p50:double duration_p99:double cut:long"
    ),
    "audit": _table(
        "app:string family:string message:long label:string sender:string target:string "
        "verdict:string reason:string node:string at:long born:long"
    ),
}

# Many rows as one, to be moved together.
PACK = StructType(
    [
        *_struct("what:int born_hour:long piece:long rows:long note:string"),
        StructField("data", BinaryType()),
    ]
)
# What of `sessions` events say.
TURNOVER = _struct(
    "app:string edge:string window:long opened:long closed:long reconnects:long "
    "duration_p50:double duration_p99:double"
)
# What of `queues` flows say.
MINUTES = _struct(
    "app:string queue:string window:long stored:long lent:long acked:long returned:long "
    "died:long cancelled:long purged:long replayed:long change:long frontier:long "
    "age_p50:double age_p99:double age_max:long"
)

assert set(_HOP_NAMES) < set(NAMES)


def arrow_type(type_: DataType) -> pa.DataType:
    """The type of Arrow that is Spark's."""
    if isinstance(type_, ArrayType):
        return pa.list_(arrow_type(type_.elementType))
    if isinstance(type_, StructType):
        return pa.struct([pa.field(field.name, arrow_type(field.dataType)) for field in type_])
    return _ARROW[type(type_)]


_ARROW: Final[dict[type[DataType], pa.DataType]] = {
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    DoubleType: pa.float64(),
    StringType: pa.string(),
    BooleanType: pa.bool_(),
    BinaryType: pa.binary(),
}


def arrow_schema(struct: StructType) -> pa.Schema:
    """A table's schema as Arrow has it."""
    return pa.schema([pa.field(field.name, arrow_type(field.dataType)) for field in struct])
