"""What is in queues is what came into them and did not go, in whatever hours."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from chappe.pipeline import backlog, queues
from chappe.pipeline.backlog import Stock, of_hour, stock_of
from chappe.pipeline.options import Options
from chappe.pipeline.parts import Attempt, write_whole
from chappe.pipeline.paths import paths_of
from chappe.pipeline.schema import EVENT, MINUTES, arrow_schema
from chappe.pipeline.sums import FLOWS, Sums
from chappe.pipeline.table import Table, read
from tests.pipeline import tales
from tests.pipeline.traffic import DAY, HOUR, MINUTE, SECOND, Node, World, hour

SCHEMA = arrow_schema(MINUTES)
KEYS = ("app", "queue", "window")
ROW = st.fixed_dictionaries(
    {
        "app": st.sampled_from(["a", "b"]),
        "queue": st.sampled_from(["queue/q", "queue/r"]),
        "window": st.integers(0, 11).map(lambda n: DAY + n // 3 * HOUR + n % 3 * MINUTE),
        "change": st.integers(-2, 2),
        "frontier": st.one_of(st.none(), st.integers(DAY, DAY + 9)),
        "stored": st.integers(0, 3),
    }
)
ROWS = st.lists(ROW, max_size=20, unique_by=lambda row: tuple(row[key] for key in KEYS))


def plain(rows: list[dict]) -> list[tuple]:
    """Hour by hour, queue by queue, row by row."""
    found = []
    stock: dict[tuple[str, str], tuple[int, int | None]] = {}
    for name in sorted({hour(row["window"]) for row in rows}):
        mine = [row for row in rows if hour(row["window"]) == name]
        told = {(row["app"], row["queue"]) for row in mine}
        begin = min(row["window"] for row in mine) // HOUR * HOUR
        quiet = {"window": begin, "change": 0, "frontier": None, "stored": 0}
        mine += [{**quiet, "app": app, "queue": queue} for app, queue in stock.keys() - told]
        for row in sorted(mine, key=lambda row: [row[key] for key in KEYS]):
            owner = row["app"], row["queue"]
            lag, frontier = stock.get(owner, (0, None))
            known = [one for one in (frontier, row["frontier"]) if one is not None]
            stock[owner] = lag + row["change"], max(known, default=None)
            found.append((name, *owner, row["window"], row["stored"], *stock[owner]))
        stock = {owner: kept for owner, kept in stock.items() if kept[0]}
    return found


def files(place: Path, rows: list[dict]) -> dict[str, list[str]]:
    found = {}
    for name in {hour(row["window"]) for row in rows}:
        file = place / f"{name}.parquet"
        mine = [row for row in rows if hour(row["window"]) == name]
        write_whole(pa.Table.from_pylist(mine, SCHEMA), file)
        found[name] = [str(file)]
    return found


def taken(rows: pa.Table) -> list[tuple]:
    names = ("hour", *KEYS, "stored", "lag", "frontier")
    every = [tuple(row[name] for name in names) for row in rows.to_pylist()]
    return sorted(every, key=lambda row: row[:4])


@given(ROWS)
def test_hours_one_after_another_are_what_is_counted_row_by_row(rows: list[dict]):
    stock: dict[tuple[str, str], Stock] = {}
    made = []
    for name in sorted({hour(row["window"]) for row in rows}):
        mine = [row for row in rows if hour(row["window"]) == name]
        told = of_hour(name, pa.Table.from_pylist(mine, SCHEMA), stock)
        stock = stock_of(told)
        made += taken(told)
    assert made == plain(rows)


def test_rows_since_a_time_go_on_from_the_hour_before(tmp_path: Path):
    about = {"app": "a", "queue": "queue/q", "stored": 1, "frontier": None}
    first = [
        {**about, "window": DAY, "change": 3, "frontier": DAY + 5},
        {**about, "queue": "queue/r", "window": DAY, "change": 1},
        # Nothing of queue/r happens any more; it is not forgotten for that.
        {**about, "window": DAY + 2 * HOUR, "change": -1},
        {**about, "window": DAY + 3 * HOUR, "change": -2},
    ]
    # In the third hour something else, and in a fifth.
    then = [
        {**about, "window": DAY + 2 * HOUR, "change": -1},
        {**about, "window": DAY + 2 * HOUR + MINUTE, "change": 4, "frontier": DAY + 2},
        {**about, "window": DAY + 4 * HOUR, "change": 1},
    ]
    table = Table(tmp_path, "queues")
    one, two = (Attempt.begin(tmp_path, run) for run in (1, 2))
    replaced = backlog.write_queues(one, DAY, files(tmp_path / "1", first))
    assert replaced == set()
    table.commit(one, replaced)
    assert taken(read(tmp_path, "queues")) == plain(first)
    assert backlog.frontiers(table) == {}
    since = DAY + 2 * HOUR
    replaced = backlog.write_queues(two, since, files(tmp_path / "2", then))
    assert replaced == {hour(since), hour(since + HOUR)}
    table.commit(two, replaced)
    assert taken(read(tmp_path, "queues")) == plain([*first[:2], *then])
    assert backlog.frontiers(table) == {("a", "queue/q"): DAY + 5}


def test_what_a_group_does_not_want_and_what_is_removed_is_in_a_queue_no_more():
    here = World(Node("n1"))
    here.start("n1", DAY)
    for n in range(3):
        message = here.store("n1", DAY + n * SECOND)
        if n == 0:
            here.work("n1", DAY + MINUTE, message, "dropped", reason="nobody", attempt=None)
    told = [row for row in here.rows if "message" in row]
    removed = here.tell("n1", DAY + 2 * MINUTE, "removed", app="a", target="queue/q", n=2)
    paths, trails = paths_of(tales.table(told), hour(DAY), tales.clocks({}), Options())
    assert trails is not None
    assert [(row["open"], row["cancelled"]) for row in paths.to_pylist()] == [
        (False, True),
        (True, False),
        (True, False),
    ]
    happened = queues.flows(dict(Sums(paths, trails, Options()).all())[FLOWS])
    thrown = queues.of_queues(
        pa.Table.from_pylist([removed], arrow_schema(EVENT)), tales.clocks({})
    )
    flows = pa.concat_tables([happened.cast(thrown.schema), thrown])
    made = of_hour(hour(DAY), queues.minutes(flows), {}).to_pylist()
    assert [(row["window"], row["stored"], row["lag"]) for row in made] == [
        (DAY, 3, 3),
        (DAY + MINUTE, 0, 2),
        (DAY + 2 * MINUTE, 0, 0),
    ]
