"""Rows that are added up while they are read come to what all of them do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.pipeline.hours import HOUR_US
from chappe.pipeline.report import tally
from chappe.pipeline.report.gold import Gold, Period
from chappe.pipeline.report.span import Span
from chappe.pipeline.report.tally import How, Tally
from chappe.pipeline.schema import TABLES, arrow_schema
from chappe.pipeline.table import Table
from tests.pipeline.traffic import DAY, HOUR, MINUTE, Row, hour

SCHEMA = pa.schema([("key", pa.string()), *((n, pa.int64()) for n in ("window", "a", "b", "c"))])
HOW: dict[str, How] = {"a": "sum", "b": "max", "c": "last"}
NUMBER = st.one_of(st.none(), st.integers(-9, 9))
ROWS = st.lists(
    st.fixed_dictionaries(
        {"key": st.sampled_from(["x", "y", None]), "a": NUMBER, "b": NUMBER, "c": NUMBER}
    ),
    max_size=40,
)


def known(rows: list[Row], name: str) -> list[int]:
    return [row[name] for row in rows if row[name] is not None]


@given(ROWS, st.randoms(use_true_random=False), st.integers(1, 9), st.integers(1, 9))
def test_parts_add_up_to_all_in_whatever_order_they_come(
    rows: list[Row], chance: Any, size: int, waiting: int
):
    for minute, row in enumerate(rows):
        row["window"] = minute
    truth = {}
    for key in {row["key"] for row in rows}:
        mine = [row for row in rows if row["key"] == key]
        a, b, c = (known(mine, name) for name in ("a", "b", "c"))
        truth[key] = (sum(a) if a else None, max(b, default=None), c[-1] if c else None)
    shuffled = chance.sample(rows, len(rows))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tally, "_WAITING_MIN", waiting)
        counted = Tally(["key"], HOW)
        for begin in range(0, len(rows), size):
            counted.add(pa.Table.from_pylist(shuffled[begin : begin + size], SCHEMA))
    found = counted.table(SCHEMA)
    assert found.column_names == ["key", "a", "b", "c"]
    assert {row["key"]: (row["a"], row["b"], row["c"]) for row in found.to_pylist()} == truth
    assert found.num_rows == len(truth)


def put(tables: Path, name: str, rows: list[Row]) -> None:
    schema = arrow_schema(TABLES[name])
    told = [{"hour": hour(row["window"]), **row} for row in rows]
    Table(tables, name).put(pa.Table.from_pylist(told, schema=schema), 1, None)


def test_a_table_is_read_a_little_at_a_time(tmp_path: Path):
    count = 20_000
    row = {"app": "a", "family": "topic", "window": DAY, "messages": 1, "scaled": 1.0}
    put(tmp_path, "delivery", [row] * count)
    gold = Gold(tmp_path, Period())
    sizes = [part.num_rows for part in gold.parts("delivery", ["app", "window"])]
    assert sum(sizes) == count
    assert max(sizes) < count // 2
    [made] = gold.stepped("delivery", Span(gold.windows("delivery"))).to_pylist()
    assert (made["messages"], made["step"]) == (count, DAY)


def test_a_period_ends_where_the_next_begins(tmp_path: Path):
    windows = [DAY + n * 20 * MINUTE for n in range(12)]
    put(tmp_path, "delivery", [{"app": "a", "window": at, "messages": 1} for at in windows])
    begin, end = windows[4], windows[8]

    def within(period: Period) -> list[int]:
        parts = Gold(tmp_path, period).parts("delivery", ["window"])
        return [at for part in parts for at in part["window"].to_pylist()]

    assert within(Period()) == windows
    assert within(Period(begin, end)) == windows[4:8]
    assert within(Period(since=begin)) == windows[4:]
    assert within(Period(until=end)) == windows[:8]


def test_hours_may_be_wrong_by_one_and_some_rows_have_none():
    day = [hour(DAY + n * HOUR) for n in range(9)]
    period = Period(DAY + 3 * HOUR, DAY + 5 * HOUR)
    assert period.hours([*day, "open", "none"]) == {*day[2:7], "open", "none"}
    assert Period().hours([*day, "open"]) == {*day, "open"}
    assert HOUR == HOUR_US


def test_who_came_before_is_still_there(tmp_path: Path):
    row = {"app": "a", "edge": "tcp"}
    told = [(-HOUR, 7), (-MINUTE, 5), (-2 * MINUTE, 9), (3 * MINUTE, 6)]
    put(tmp_path, "sessions", [{**row, "window": DAY + at, "online": n} for at, n in told])
    gold = Gold(tmp_path, Period(since=DAY))
    span = Span(gold.windows("sessions"))
    [before] = gold.before("sessions", span).to_pylist()
    assert (before["online"], before["step"]) == (5, span.before)
    [after] = gold.stepped("sessions", span).to_pylist()
    assert (after["online"], after["step"]) == (6, DAY + 3 * MINUTE)
    assert Gold(tmp_path, Period()).before("sessions", span).num_rows == 0
