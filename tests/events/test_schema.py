"""The schema: what every reader of events relies on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chappe.events.eventlog import EventLog
from chappe.events.eventrecorder import EventRecorder
from chappe.events.parquet import SCHEMA, EventTable
from chappe.events.schema import COLUMNS, KINDS, NAMES, VERSION, Kind

NOON_US = 12 * 3_600_000_000

# What version 1 has, in its order: more may follow, nothing may move.
FIRST = (
    *("v", "kind", "node", "boot", "serial", "at", "app", "message", "label", "sender", "target"),
    *("came", "came_from", "went_to", "n", "bytes", "session", "edge", "group_name", "attempt"),
    *("due", "reason", "peer", "ahead", "round_trip", "share"),
)


def test_columns_are_only_ever_added_at_the_end() -> None:
    assert NAMES[: len(FIRST)] == FIRST
    assert len(set(NAMES)) == len(NAMES)
    assert VERSION >= 1


def test_every_kind_names_columns_that_there_are() -> None:
    for name, kind in KINDS.items():
        assert set(kind.columns) <= set(NAMES), name
        assert kind.about


def test_what_a_kind_says_of_itself_makes_sense_together() -> None:
    for name, kind in KINDS.items():
        assert set(kind.needs) <= set(kind.columns), name
        assert (kind.family is not None) == (kind.part in ("send", "publish")), name
        if kind.family is not None:
            assert {"came", "came_from", "went_to", "n"} <= set(kind.columns), name
        if kind.part is not None:
            assert {"message", "label"} & set(kind.columns), name
        if kind.told == "sampled":
            assert "message" in kind.columns, name


def test_what_every_event_has_is_required_and_nothing_else_is() -> None:
    required = {column.name for column in COLUMNS if column.required}
    assert required == {"v", "kind", "node", "boot", "serial", "at", "share"}


def test_every_column_and_kind_is_in_the_documents_as_it_is_here() -> None:
    written = (Path(__file__).parents[2] / "docs" / "events.md").read_text()
    for column in COLUMNS:
        assert f"| `{column.name}` | {column.type} | {column.about} |" in written
    for name, kind in KINDS.items():
        columns = ", ".join(f"`{column}`" for column in kind.columns)
        assert f"| `{name}` | {kind.about} | {columns} |" in written


def test_the_documents_say_of_every_kind_its_part_in_a_path_and_how_it_is_told() -> None:
    written = (Path(__file__).parents[2] / "docs" / "events.md").read_text()
    ends = {
        line.split("`")[1]: [cell.strip() for cell in line.split("|")[-3:-1]]
        for line in written.splitlines()
        if line.startswith("| `")
    }
    for name, kind in KINDS.items():
        part = f"{kind.part} ({kind.family})" if kind.family else kind.part or ""
        assert ends[name] == [part, kind.told], name


def test_a_kind_is_added_by_a_line_here_and_told_by_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(KINDS, "room_entered", Kind("a user is in a room", ("app", "target", "n")))
    tables: list[tuple[int, Any]] = []
    table = EventTable(lambda hour, rows: tables.append((hour, rows)))

    class Log:
        def append(self, record: bytes, done: object, *, idle: bool) -> None:
            assert table.take(b"\x91" + record)

    class Timer:
        def call_later(self, delay: float, callback: object) -> None:
            """It need not ring."""

    events = EventLog("a", Log(), Timer(), lambda: NOON_US)
    recorder = EventRecorder(events, 1.0, lambda: NOON_US)
    recorder.tell("room_entered", "shop", target="room:1", n=3)
    events.start()
    table.flush()
    ((hour, found),) = tables
    assert hour == 12
    (row,) = [row for row in found.to_pylist() if row["kind"] == "room_entered"]
    assert {name: value for name, value in row.items() if value is not None} == {
        "v": VERSION,
        "kind": "room_entered",
        "node": "a",
        "boot": NOON_US,
        "serial": 1,
        "at": NOON_US,
        "app": "shop",
        "target": "room:1",
        "n": 3,
        "share": 1.0,
    }
    with pytest.raises(AssertionError, match="columns"):
        recorder.tell("room_entered", "shop", session="s")


def test_spark_and_the_files_have_the_schema_that_is_here() -> None:
    types = pytest.importorskip("pyspark.sql.types")
    from chappe.pipeline.schema import EVENT

    of_spark = {
        "int": types.IntegerType(),
        "long": types.LongType(),
        "double": types.DoubleType(),
        "string": types.StringType(),
        "strings": types.ArrayType(types.StringType()),
    }
    assert [(field.name, field.dataType) for field in EVENT.fields] == [
        (column.name, of_spark[column.type]) for column in COLUMNS
    ]
    assert SCHEMA.names == list(NAMES)
    assert [field.nullable for field in SCHEMA] == [not column.required for column in COLUMNS]
