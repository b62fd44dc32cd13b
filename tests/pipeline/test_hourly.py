"""An hour's parts are written of its sums, and of what events of it and those beside it tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.pipeline import hourly
from chappe.pipeline.hours import HOUR_US, hour_name, hour_us
from chappe.pipeline.packing import EVENTS, SUMS, Pack, read
from chappe.pipeline.parts import Attempt, write_part
from chappe.pipeline.schema import EVENT, PACK, arrow_schema
from chappe.pipeline.silver import once
from chappe.pipeline.sums import FLOWS, LINKS
from chappe.pipeline.told import beats, sources, told
from tests.pipeline.tales import clocks
from tests.pipeline.traffic import DAY, HOUR, MINUTE, SECOND, Node, Row, World, hour

H0, H1, H2 = (hour(DAY + n * HOUR) for n in range(3))
ABOUT = {"app": "a", "target": "queue/q"}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, list[str]]:
    """Files of events, of three hours."""
    world = World(Node("n1"), Node("n2"))
    world.start("n1", DAY)
    world.start("n2", DAY)
    world.beat(DAY + HOUR, DAY + HOUR + MINUTE)
    world.tell("n1", DAY + HOUR - SECOND, "link_down", peer="n2")
    world.tell("n1", DAY + HOUR + SECOND, "link_up", peer="n2")
    world.tell("n1", DAY + 2 * HOUR - SECOND, "link_down", peer="n2")
    world.tell("n1", DAY + 2 * HOUR + SECOND, "node_alive")
    for n in range(3):
        world.tell("n1", DAY + n * HOUR, "removed", **ABOUT, n=n + 1)
    return {name: [_saved(tmp_path / "given", name, world.rows)] for name in (H0, H1, H2)}


def _saved(place: Path, name: str, rows: list[Row]) -> str:
    mine = [row for row in rows if hour(row["at"]) == name]
    given = Attempt(place, 1, "given")
    write_part(given, "events", name, 0, once(pa.Table.from_pylist(mine, arrow_schema(EVENT))))
    return str(given.place("events") / f"hour={name}" / "part-0.parquet")


def put(tables: Path, *packs: tuple[str, str, pa.Table]) -> list[tuple[str, int]]:
    """As a task does that is given packs in the order of their hours; since when flows changed."""
    batches = [
        Pack(SUMS, hour_us(name) // HOUR_US, 0, rows, note).batch() for name, note, rows in packs
    ]
    given = [batch.select(["born_hour", "note", "data"]) for batch in batches]
    # What the first hour's node says of queues is of a clock that is ahead.
    right = clocks({("n1", DAY): -SECOND})
    made = pa.Table.from_batches(
        hourly._put_together(given, right, Attempt(tables, 1, "put")), arrow_schema(PACK)
    )
    return [
        (hour_name(hour.as_py() * HOUR_US), read(data)["window"][0].as_py())
        for hour, data in zip(made["born_hour"], made["data"], strict=True)
    ]


def parts(tables: Path, name: str) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """The rows of each file of a table, by its hour and name."""
    found = sorted(Attempt(tables, 1, "put").place(name).glob("hour=*/*.parquet"))
    return {
        (file.parent.name.removeprefix("hour="), file.name): pq.ParquetFile(file).read().to_pylist()
        for file in found
    }


def test_an_hour_s_links_are_of_its_messages_and_its_events(
    files: dict[str, list[str]], tmp_path: Path
):
    ways = {
        "node": ["n1"],
        "peer": ["n2"],
        "role": pa.nulls(1, pa.string()),
        "window": [DAY + HOUR],
        "bucket": pa.array([100], pa.int32()),
        "count": [2],
        "handed": [3],
    }
    changed = put(
        tmp_path,
        (H1, LINKS, pa.table(ways)),
        (H1, hourly._SOURCES, sources(H1, files)),
    )
    assert changed == []
    [(place, rows)] = parts(tmp_path, LINKS).items()
    assert place == (H1, "part-0.parquet")
    names = ("node", "window", "handed", "arrived", "beats", "ups", "downs", "down_us")
    assert sorted(tuple(row[name] for name in names) for row in rows) == [
        # Down since the hour before.
        ("n1", DAY + HOUR, 3, 2, 6, 1, 0, SECOND),
        # And until the next, in which its node tells on.
        ("n1", DAY + 2 * HOUR - MINUTE, 0, 0, 0, 0, 1, SECOND),
        ("n2", DAY + HOUR, 0, 0, 6, 0, 0, 0),
    ]


def test_flows_of_whole_queues_are_beside_those_of_messages_if_they_are_asked_for(
    files: dict[str, list[str]], tmp_path: Path
):
    flow = {"app": ["a"], "queue": ["queue/q"], "what": ["stored"], "window": [DAY + HOUR]}
    nothing = pa.nulls(1, pa.int64())
    happened = {**flow, "bucket": pa.nulls(1, pa.int32()), "count": [1]}
    happened |= {"frontier": nothing, "max": nothing}
    packs = [
        (H0, hourly._SOURCES, sources(H0, files, ())),
        (H1, FLOWS, pa.table(happened)),
        (H1, hourly._SOURCES, sources(H1, files, ())),
        (H2, hourly._SOURCES, sources(H2, files)),
    ]
    assert put(tmp_path, *packs) == [(H0, DAY - MINUTE), (H1, DAY + HOUR)]
    found = {
        place: [(row["what"], row["window"], row["count"]) for row in rows]
        for place, rows in parts(tmp_path, FLOWS).items()
    }
    assert found == {
        (H0, "part-0.parquet"): [("removed", DAY - MINUTE, 1)],
        (H1, "part-0.parquet"): [("stored", DAY + HOUR, 1), ("removed", DAY + HOUR, 2)],
    }
    # The same once more is no change.
    before = {
        name: [str(Attempt(tmp_path, 1, "put").place(FLOWS) / f"hour={name}" / "part-0.parquet")]
        for name in (H0, H1)
    }
    again = [
        (H0, hourly._SOURCES, sources(H0, files, before[H0])),
        (H1, FLOWS, pa.table(happened | {"count": [2]})),
        (H1, hourly._SOURCES, sources(H1, files, before[H1])),
    ]
    assert put(tmp_path / "again", *again) == [(H1, DAY + HOUR)]


def test_of_files_only_what_is_asked_for_is_told(files: dict[str, list[str]]):
    found = told(sources(H1, files, ()))
    assert sorted(found.links["kind"].to_pylist()) == ["link"] * 12 + ["link_down", "link_up"]
    assert found.changes["kind"].to_pylist() == ["link_down", "link_down", "link_up"]
    assert found.last == {"n1": DAY + 2 * HOUR - SECOND, "n2": DAY + HOUR + 50 * SECOND}
    assert found.thrown["n"].to_pylist() == [2]
    # No link went then: when its node told the last does not matter.
    later = hour(DAY + 3 * HOUR)
    assert told(sources(later, {H2: files[H2]})).last == {}
    assert beats(files[H1]).num_rows == 12
    assert beats([]).num_rows == 0


KINDS = ("link", "node_alive", "session_opened")


def events_of(serials: Iterable[int]) -> pa.Table:
    about = {"v": 1, "node": "n1", "boot": 1, "at": DAY, "peer": "n2"}
    rows = [{**about, "serial": n, "kind": KINDS[n % 3]} for n in serials]
    return pa.Table.from_pylist(rows, arrow_schema(EVENT))


def split(name: str, pieces: int, *packs: Iterable[int]) -> list[pa.RecordBatch]:
    """Events in pieces, as a task gets them."""
    batches = [Pack(EVENTS, hour_us(name) // HOUR_US, 0, events_of(pack)).batch() for pack in packs]
    made = hourly._split(batches, {hour_us(name) // HOUR_US: pieces})
    found = sorted(made, key=lambda batch: batch["piece"][0].as_py())
    return [batch.select(["born_hour", "piece", "data"]) for batch in found]


@given(st.lists(st.lists(st.integers(1, 2000), max_size=60), max_size=3), st.integers(1, 5))
def test_an_event_is_in_the_same_piece_whatever_pack_it_was_in(packs: list[list[int]], pieces: int):
    found: Counter[int] = Counter()
    places: dict[int, int] = {}
    for batch in split(H0, pieces, *packs):
        [piece] = batch["piece"].to_pylist()
        assert 0 <= piece < pieces
        for serial in read(batch["data"][0])["serial"].to_pylist():
            found[serial] += 1
            assert places.setdefault(serial, piece) == piece
    assert found == Counter(serial for pack in packs for serial in pack)


def test_pieces_of_an_hour_are_files_of_about_the_same_size_with_each_event_once(tmp_path: Path):
    attempt = Attempt.begin(tmp_path, 1)
    # The second file has much that the first had.
    pieces = split(H0, 3, range(1, 201), range(101, 301))
    assert list(hourly._write_events(pieces, attempt)) == []
    files = sorted(attempt.place("events").glob(f"hour={H0}/*.parquet"))
    assert [file.name for file in files] == [f"part-{n}.parquet" for n in range(3)]
    rows = [pq.ParquetFile(file).read() for file in files]
    assert all(90 <= one.num_rows <= 110 for one in rows)
    assert sorted(pa.concat_tables(rows)["serial"].to_pylist()) == [*range(1, 301)]
    for one in rows:
        kinds = one["kind"].to_pylist()
        assert kinds == sorted(kinds)
    assert beats([str(file) for file in files]).num_rows == 100
