"""Silver: rows that make sense, each with its birth hour; the others, with what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.types import StringType, StructField, StructType

from chappe.events.schema import COLUMNS, KINDS, VERSION
from chappe.ids import EPOCH_MS, NODE_BITS, SEQUENCE_BITS, TIME_MAX
from chappe.pipeline.columns import Flags, Longs, flags, longs, present, whole
from chappe.pipeline.hours import HOUR_US, hour_of
from chappe.pipeline.kinds import MESSAGE_KINDS, NEEDED
from chappe.pipeline.schema import EVENT, TABLES

# Ids are given from one time to another.
_AT_MIN = EPOCH_MS * 1000
_AT_MAX = (EPOCH_MS + TIME_MAX) * 1000
_NO_TIME = "at no time that an id is given at"
# More than there can be; sums of as much as a day brings are still numbers.
_MANY = 1 << 40
_TIMES = ("boot", "came", "due", "expires")
_NUMBERS = (
    *("n", "bytes", "round_trip", "partition", "copies", "rooms", "members", "gateways"),
    *("failed", "delay_p50", "delay_p99", "offline"),
)
# Of what is recorded less often than this, nothing can be said.
_SHARE_MIN = 1e-9
# A smaller number at a label's end was no clock's.
_NUMBER_MIN = 1 << 42
_NUMBER = r"^-?[0-9]{1,18}$"
# A note's id ends with the second in which it was given (P5).
_NOTE = r"^[pm][0-9a-z]{2}[0-9a-f]{13}$"
_SECOND_AT, _SECOND_DIGITS = 8, 8
_HEX = np.zeros(256, np.int64)
_HEX[[ord(digit) for digit in "0123456789abcdef"]] = range(16)
BAD_ROW: Final = StructType([*EVENT, *(StructField(n, StringType()) for n in ("problem", "file"))])


class Closed(NamedTuple):
    """Times that nothing more is taken of.

    An event is late if it happened before the watermark. A message is not late because it is old: a
    queue may keep it for a year. But once its hour is forgotten, there is nothing to join it to.
    """

    at_before: int = 0
    born_before: int = 0


NOTHING_CLOSED = Closed()


class Check:
    """What is known of rows, as arrays."""

    def __init__(self, rows: pa.Table, closed: Closed = NOTHING_CLOSED) -> None:
        self._columns = {name: whole(rows[name]) for name in EVENT.names}
        self._closed = closed
        message, label = self._columns["message"], self._columns["label"]
        has_id = present(message) | present(label)
        # Whether a row belongs to a message or a request.
        self.belongs: Flags = self._of(*MESSAGE_KINDS) & has_id
        self.born: Longs = self._born()

    def problems(self) -> pa.Array:
        """The first thing that is wrong with each row, or null."""
        rules = self._rules()
        found = np.full(len(self.born), -1, np.int16)
        for n, (wrong, _reason) in enumerate(rules):
            if wrong.any():
                found[wrong & (found < 0)] = n
        if found.max(initial=-1) < 0:
            return pa.nulls(len(found), pa.string())
        reasons = pa.array([reason for _wrong, reason in rules])
        return reasons.take(pa.array(found, mask=found < 0))

    def _of(self, *kinds: str) -> Flags:
        return flags(pc.is_in(self._columns["kind"], value_set=pa.array(kinds)))

    def _born(self) -> Longs:
        """When what a row belongs to began: a message or a request with its id, else when it was
        told to have begun."""
        message, at = self._columns["message"], longs(self._columns["at"], 0)
        of_id = _given_us(longs(message, 0))
        named = np.flatnonzero(self.belongs & ~present(message))
        born = np.where(self.belongs & present(message), of_id, at)
        if len(named):
            born[named] = self._asked(named, at)
        return born

    def _asked(self, rows: Longs, at: Longs) -> Longs:
        """Several nodes tell of a request, each of another time: what they share is its label,
        which ends with a number that was given like a message's. So it is of a note, whose label
        ends with a time."""
        taken = pa.array(rows)
        came = longs(self._columns["came"].take(taken), 0)
        told = np.where(present(self._columns["came"].take(taken)), came, at[rows])
        label = self._columns["label"].take(taken)
        parts = pc.split_pattern(label, ".", max_splits=1, reverse=True)
        ends = np.cumsum(longs(pc.list_value_length(parts))) - 1
        last = pc.list_flatten(parts).take(pa.array(ends))
        number = pc.if_else(pc.match_substring_regex(last, _NUMBER), last, "0").cast(pa.int64())
        given = longs(number)
        born = np.where(given >= _NUMBER_MIN, _given_us(given), told)
        notes = flags(pc.match_substring_regex(label, _NOTE))
        if notes.any():
            born[notes] = _pushed_us(label.filter(pa.array(notes)))
        return born

    def _rules(self) -> list[tuple[Flags, str]]:
        columns = self._columns

        def missing(name: str) -> Flags:
            return ~present(columns[name])

        def outside(name: str, least: float, most: float) -> Flags:
            column = columns[name]
            return flags(pc.or_(pc.less(column, least), pc.greater(column, most)))

        at, version = longs(columns["at"], _AT_MIN), longs(columns["v"], 1)
        # A row of a later version is read as far as it is known: columns are only ever added.
        rules: list[tuple[Flags, str]] = [
            (missing(column.name), f"{column.name}: missing")
            for column in COLUMNS
            if column.required
        ]
        rules += [
            (version < 1, "v: not a version"),
            ((version <= VERSION) & ~self._of(*KINDS), "kind: unknown"),
            (at < _AT_MIN, "at: before any id was given"),
            (at > _AT_MAX, "at: beyond all ids"),
            (longs(columns["message"], 1) <= 0, "message: not an id"),
            *((outside(name, 0, _AT_MAX), f"{name}: {_NO_TIME}") for name in _TIMES),
            ((self.born < _AT_MIN) | (self.born > _AT_MAX), f"message: {_NO_TIME}"),
            *((outside(name, 0, _MANY), f"{name}: not a number of them") for name in _NUMBERS),
            (outside("ahead", -_AT_MAX, _AT_MAX), f"ahead: {_NO_TIME}"),
            (
                outside("share", _SHARE_MIN, 1.0) | flags(pc.is_nan(columns["share"])),
                "share: not above 0 up to 1",
            ),
            *(
                (self._of(*kinds) & missing(name), f"{name}: missing")
                for name, kinds in NEEDED.items()
            ),
            *self._late(),
        ]
        return rules

    def _late(self) -> Iterator[tuple[Flags, str]]:
        at_before, born_before = self._closed
        if at_before:
            late = longs(self._columns["at"]) < at_before
            yield late, f"late: before {_time(at_before)}"
        if born_before:
            reason = f"late: of an hour before {_time(born_before)}, which is forgotten"
            yield self.born < born_before, reason


def _given_us(ids: Longs) -> Longs:
    """When ids were given."""
    return ((ids >> (NODE_BITS + SEQUENCE_BITS)) + EPOCH_MS) * 1000


def _pushed_us(notes: pa.Array) -> Longs:
    """When notes were given their ids, of such alone."""
    digits = pc.utf8_slice_codeunits(notes, _SECOND_AT, _SECOND_AT + _SECOND_DIGITS)
    each = np.frombuffer("".join(digits.to_pylist()).encode(), np.uint8)
    places = 16 ** np.arange(_SECOND_DIGITS - 1, -1, -1, dtype=np.int64)
    seconds: Longs = _HEX[each].reshape(-1, _SECOND_DIGITS) @ places
    return seconds * 1_000_000


def _time(us: int) -> str:
    return datetime.fromtimestamp(us // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def once(rows: pa.Table) -> pa.Table:
    """Each event once, however often it was written down, in the order of kinds and times."""
    order = [("kind", "ascending"), ("at", "ascending")]
    rows = rows.sort_by([*order, *((name, "ascending") for name in ("node", "boot", "serial"))])
    if rows.num_rows < 2:
        return rows
    new = np.zeros(rows.num_rows, dtype=np.bool_)
    new[0] = True
    for name in ("node", "boot", "serial"):
        codes = longs(whole(rows[name]).dictionary_encode().indices)
        new[1:] |= codes[1:] != codes[:-1]
    return rows if new.all() else rows.filter(pa.array(new))


def quarantined(rows: DataFrame) -> DataFrame:
    """Rows that make no sense, as JSON, by the hour in which they were told if that is one."""
    row = fn.to_json(fn.struct(*EVENT.names)).alias("row")
    told = fn.when(fn.col("at").between(_AT_MIN, _AT_MAX), hour_of(fn.col("at")))
    hour = fn.coalesce(told, fn.lit("none")).alias("hour")
    return rows.select(hour, "problem", "file", row).select(*TABLES["quarantine"].names)


def birth_hours(born: Longs) -> Longs:
    """The numbers of hours; 0 of times that make no sense."""
    sensible = (born >= _AT_MIN) & (born <= _AT_MAX)
    return np.where(sensible, born // HOUR_US, 0)
