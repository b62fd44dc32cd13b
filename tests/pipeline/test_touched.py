"""Which hours a run makes anew, of what came."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from chappe.pipeline.hours import HOUR_US
from chappe.pipeline.packing import BAD, EVENTS, MESSAGES
from chappe.pipeline.reading import BEATS, CHANGES, _sorted_out
from chappe.pipeline.schema import EVENT, TABLES, arrow_schema
from chappe.pipeline.silver import NOTHING_CLOSED
from chappe.pipeline.table import Table
from chappe.pipeline.told import DOWN_HOURS
from chappe.pipeline.touched import About, Touched, hours_of
from tests.pipeline.traffic import DAY, HOUR, hour


def have(tables: Path, name: str, *hours: int) -> Table:
    """A table with a row in each of these hours."""
    rows = [
        {"hour": at(n), "first_at": DAY + n * HOUR, "last_at": DAY + n * HOUR + 1} for n in hours
    ]
    schema = arrow_schema(TABLES[name])
    table = Table(tables, name)
    table.put(pa.Table.from_pylist(rows, schema=schema), 1, None)
    return table


def at(n: int) -> str:
    return hour(DAY + n * HOUR)


def pack(what: int, n: int, note: str | None = None) -> About:
    return About(what, DAY // HOUR_US + n, note)


def test_an_event_touches_its_hour_and_what_is_made_of_it_with_messages(tmp_path: Path):
    paths, events = (have(tmp_path, name, *range(9)) for name in ("paths", "events"))
    made = hours_of([pack(EVENTS, 3), pack(MESSAGES, 7), pack(BAD, 5)], paths, events)
    assert made == Touched({at(3), at(7)}, {at(3)}, set(), set(), bad=True)
    assert made.links == {at(3), at(7)}


def test_a_beat_touches_messages_that_were_there_then(tmp_path: Path):
    paths, events = (have(tmp_path, name, *range(9)) for name in ("paths", "events"))
    made = hours_of([pack(EVENTS, 3, BEATS)], paths, events)
    assert made == Touched({at(3), at(4)}, {at(3)}, {at(3), at(4)}, set(), bad=False)


@pytest.mark.parametrize("note", [CHANGES, f"{BEATS} {CHANGES}"])
def test_a_link_that_went_touches_all_hours_in_which_it_may_be_down(tmp_path: Path, note: str):
    last = 3 + DOWN_HOURS
    paths = have(tmp_path, "paths", 5, last + 1)
    # Of some hours nothing is known, and one is new.
    events = have(tmp_path, "events", 2, 3, 5, 9, last, last + 1)
    made = hours_of([pack(EVENTS, 3, note), pack(EVENTS, 11)], paths, events)
    assert made.downs == {at(n) for n in (3, 5, 9, 11, last)}
    assert made.paths == {at(5)}
    assert made.links == {at(n) for n in (3, 5, 9, 11, last)}


@pytest.mark.parametrize(
    ("kinds", "note"),
    [
        (["node_alive"], None),
        (["link", "node_alive"], BEATS),
        (["link_up"], CHANGES),
        (["link_down", "link"], f"{BEATS} {CHANGES}"),
    ],
)
def test_a_pack_notes_what_is_told_of_links(kinds: list[str], note: str | None):
    whole = {"v": 1, "node": "n", "boot": 1, "at": DAY, "share": 1.0, "peer": "m"}
    rows = [{**whole, "kind": kind, "serial": n} for n, kind in enumerate(kinds)]
    table = pa.Table.from_pylist(rows, arrow_schema(EVENT))
    [found] = _sorted_out(table, NOTHING_CLOSED, 1, "file")
    assert found.note == note
