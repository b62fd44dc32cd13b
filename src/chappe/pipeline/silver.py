"""Silver: rows that make sense, each with its birth hour; the others, with what is wrong."""

from __future__ import annotations

import functools
from datetime import UTC, datetime
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from chappe.events.schema import COLUMNS, KINDS, VERSION
from chappe.ids import EPOCH_MS, NODE_BITS, SEQUENCE_BITS, TIME_MAX
from chappe.pipeline.schema import EVENT, TABLES

MINUTE_US = 60_000_000
HOUR_US = 60 * MINUTE_US
# Kinds that are of a message when they have an id; all others are of none.
QUEUE_KINDS = (
    "stored",
    "cancelled",
    "lent",
    "acked",
    "returned",
    "died",
    "replayed",
    "purged",
)
MESSAGE_KINDS = (*QUEUE_KINDS, "sent", "published", "dropped", "asked", "answered")
# Letters may be thrown away all together, as a number.
_WITH_ID = tuple(kind for kind in QUEUE_KINDS if kind != "purged")
# Ids are given from one time to another.
_AT_MIN = EPOCH_MS * 1000
_AT_MAX = (EPOCH_MS + TIME_MAX) * 1000
_NO_TIME = "at no time that an id is given at"
# More than there can be; sums of as much as a day brings are still numbers.
_MANY = 1 << 40
_TIMES = ("boot", "came", "due")
_NUMBERS = ("n", "bytes", "round_trip")
# Of what is recorded less often than this, nothing can be said.
_SHARE_MIN = 1e-9
# A smaller number at a label's end was no clock's.
_NUMBER_MIN = 1 << 42


class Closed(NamedTuple):
    """Times that nothing more is taken of.

    An event is late if it happened before the watermark. A message is not late because it is old: a
    queue may keep it for a year. But once its hour is forgotten, there is nothing to join it to.
    """

    at_before: int = 0
    born_before: int = 0


NOTHING_CLOSED = Closed()


def checked(rows: DataFrame, closed: Closed = NOTHING_CLOSED) -> DataFrame:
    """Rows with `problem`, null where there is none, and `hour`."""
    return rows.withColumn("problem", _problem(closed)).withColumn("hour", hour_of(born_us()))


def of_messages(rows: DataFrame, closed: Closed = NOTHING_CLOSED) -> DataFrame:
    """The good rows that belong to a message or a request."""
    return rows.where(sound(closed) & belongs())


def of_nobody(rows: DataFrame) -> DataFrame:
    """The good rows that belong to none, each once."""
    good = rows.where(fn.col("problem").isNull() & ~belongs())
    return good.select("hour", *EVENT.names)


def once(rows: DataFrame) -> DataFrame:
    """Each event once, however often it was written down."""
    return rows.dropDuplicates(["hour", "node", "boot", "serial"])


def quarantined(rows: DataFrame) -> DataFrame:
    """The rows that make no sense, as JSON, by the hour in which they were told if that is one."""
    bad = rows.where(fn.col("problem").isNotNull())
    row = fn.to_json(fn.struct(*EVENT.names)).alias("row")
    told = fn.when(sensible(fn.col("at")), hour_of(fn.col("at")))
    hour = fn.coalesce(told, fn.lit("none")).alias("hour")
    return bad.select(hour, "problem", "file", row).select(*TABLES["quarantine"].names)


def belongs() -> Column:
    """Whether a row belongs to a message or a request."""
    has_id = fn.col("message").isNotNull() | fn.col("label").isNotNull()
    return fn.col("kind").isin(*MESSAGE_KINDS) & has_id


def born_us() -> Column:
    """When what a row belongs to began: a message or a request with its id, else when it was told
    to have begun."""
    # Several nodes tell of a request, each of another time: what they share is its label, which
    # ends with a number that was given like a message's.
    number = fn.substring_index("label", ".", -1).try_cast("long")
    of_label = fn.when(number >= _NUMBER_MIN, _given_us(number))
    asked = fn.coalesce(of_label, "came", "at")
    alone = fn.when(fn.col("label").isNotNull() & belongs(), asked).otherwise(fn.col("at"))
    of_id = _given_us(fn.col("message"))
    return fn.when(fn.col("message").isNotNull() & belongs(), of_id).otherwise(alone)


def _given_us(id: Column) -> Column:
    """When an id was given."""
    return (fn.shiftright(id, NODE_BITS + SEQUENCE_BITS) + EPOCH_MS) * 1000


def sensible(us: Column) -> Column:
    """Whether a time is one that ids are given at."""
    return us.between(_AT_MIN, _AT_MAX)


def hour_of(us: Column) -> Column:
    """The hour of a time, as tables are split by it."""
    # By the number and not by the session's time zone: hours are UTC whoever reads.
    day = fn.date_add(fn.lit("1970-01-01").cast("date"), fn.floor(us / (24 * HOUR_US)).cast("int"))
    hour = fn.floor(us / HOUR_US) % 24
    return fn.concat(day.cast("string"), fn.lit("T"), fn.lpad(hour.cast("string"), 2, "0"))


def window_of(us: Column, size_us: int = MINUTE_US) -> Column:
    """The begin of a time's minute, or of its window of another size."""
    return (us - fn.pmod(us, fn.lit(size_us))).cast("long")


def _late(closed: Closed) -> list[tuple[Column, str]]:
    rules = []
    if closed.at_before:
        rules.append((fn.col("at") < closed.at_before, f"late: before {_time(closed.at_before)}"))
    if closed.born_before:
        reason = f"late: of an hour before {_time(closed.born_before)}, which is forgotten"
        rules.append((born_us() < closed.born_before, reason))
    return rules


def _time(us: int) -> str:
    return datetime.fromtimestamp(us // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def sound(closed: Closed = NOTHING_CLOSED) -> Column:
    """Whether nothing is wrong with a row; what it is, `problem` says of those few that are not."""
    wrong = (fn.coalesce(condition, fn.lit(False)) for condition, _reason in _rules(closed))
    return ~functools.reduce(lambda one, other: one | other, wrong)


def _problem(closed: Closed) -> Column:
    """The first thing that is wrong with a row."""
    rules = _rules(closed)
    first = functools.reduce(
        lambda before, rule: before.when(rule[0], rule[1]),
        rules[1:],
        fn.when(rules[0][0], rules[0][1]),
    )
    return first.otherwise(fn.lit(None))


def _rules(closed: Closed) -> list[tuple[Column, str]]:
    # A row of a later version is read as far as it is known: columns are only ever added.
    rules: list[tuple[Column, str]] = [
        (fn.col(column.name).isNull(), f"{column.name}: missing")
        for column in COLUMNS
        if column.required
    ]
    rules += [
        (fn.col("v") < 1, "v: not a version"),
        ((fn.col("v") <= VERSION) & ~fn.col("kind").isin(*KINDS), "kind: unknown"),
        (fn.col("at") < _AT_MIN, "at: before any id was given"),
        (fn.col("at") > _AT_MAX, "at: beyond all ids"),
        (fn.col("message") <= 0, "message: not an id"),
        *((~fn.col(name).between(0, _AT_MAX), f"{name}: {_NO_TIME}") for name in _TIMES),
        (~sensible(born_us()), f"message: {_NO_TIME}"),
        *((~fn.col(name).between(0, _MANY), f"{name}: not a number of them") for name in _NUMBERS),
        (~fn.col("ahead").between(-_AT_MAX, _AT_MAX), f"ahead: {_NO_TIME}"),
        (~fn.col("share").between(_SHARE_MIN, 1.0), "share: not above 0 up to 1"),
        (fn.col("kind").isin(*_WITH_ID) & fn.col("message").isNull(), "message: missing"),
        (fn.col("kind").isin("asked", "answered") & fn.col("label").isNull(), "label: missing"),
        (
            fn.col("kind").isin("lent", "acked") & fn.col("group_name").isNull(),
            "group_name: missing",
        ),
        (
            fn.col("kind").isin("link", "link_up", "link_down") & fn.col("peer").isNull(),
            "peer: missing",
        ),
        *_late(closed),
    ]
    return rules
