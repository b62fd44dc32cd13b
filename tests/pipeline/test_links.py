"""Links tell what is counted beat by beat, and when they were down."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from chappe.pipeline.links import links
from chappe.pipeline.schema import EVENT, TABLES, arrow_schema
from chappe.pipeline.told import DOWN_HOURS, Told, sources
from chappe.pipeline.told import told as told_of
from tests.pipeline.traffic import DAY, HOUR, MINUTE, SECOND, Row, hour

SCHEMA = arrow_schema(EVENT)
STEP = 10 * SECOND
CHANGES = ("link_up", "link_down")


def told(rows: list[Row], begin: int = DAY) -> Told:
    """What of rows tells of the hour that begins then."""
    before = [row for row in rows if row["at"] < begin + HOUR]
    mine = [row for row in before if begin <= row["at"]]
    last: dict[str, int] = {}
    for row in mine:
        last[row["node"]] = max(row["at"], last.get(row["node"], 0))
    return Told(
        pa.Table.from_pylist([row for row in mine if row["kind"] in ("link", *CHANGES)], SCHEMA),
        pa.Table.from_pylist([row for row in before if row["kind"] in CHANGES], SCHEMA),
        last,
        SCHEMA.empty_table(),
        arrow_schema(TABLES["flows"]).empty_table(),
        SCHEMA.empty_table(),
        pa.Table.from_pylist([row for row in mine if row["kind"] == "room_link"], SCHEMA),
    )


def by_key(rows: list[Row], *names: str) -> dict[Any, tuple[Any, ...]]:
    found = {
        (row["node"], row["peer"], row["window"]): tuple(row[n] for n in names) for row in rows
    }
    assert len(found) == len(rows)
    return found


def down(rows: list[Row], begin: int = DAY) -> dict[Any, int]:
    made = by_key(links(begin, told(rows, begin)).to_pylist(), "down_us")
    return {key: us for key, (us,) in made.items() if us}


PAIRS = st.sampled_from([("a", "b"), ("a", "c"), ("b", "a")])
SAID = st.one_of(st.none(), st.integers(-9, 9))
BEATS = st.tuples(
    PAIRS, st.sampled_from(["link", "link", *CHANGES]), st.integers(0, 2 * MINUTE), SAID, SAID
)


@given(st.lists(BEATS, max_size=40))
def test_a_minute_has_its_beats_and_what_those_in_the_middle_say(beats: list[Any]):
    rows = [
        {"node": a, "peer": b, "kind": kind, "at": DAY + at, "round_trip": trip, "ahead": ahead}
        for (a, b), kind, at, trip, ahead in beats
    ]
    names = ("beats", "ups", "downs", "round_trip", "ahead")
    made = by_key(links(DAY, told(rows)).to_pylist(), *names)
    minutes: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        minutes[row["node"], row["peer"], row["at"] - row["at"] % MINUTE].append(row)
    for key, mine in minutes.items():
        kinds = [row["kind"] for row in mine]
        said = [[row[n] for row in mine if row[n] is not None] for n in ("round_trip", "ahead")]
        assert made[key] == (
            *(kinds.count(kind) for kind in ("link", *CHANGES)),
            *(int(median(some)) if some else None for some in said),
        )
    # Besides, there are minutes in which a link was just down.
    assert all(made[key] == (0, 0, 0, None, None) for key in made.keys() - minutes.keys())


TURNS = st.tuples(PAIRS, st.sampled_from([*CHANGES, "node_alive"]), st.integers(-360, 719))


@given(st.lists(TURNS, max_size=30))
def test_a_link_is_down_until_it_is_up_or_its_node_tells_no_more(turns: list[Any]):
    """Looked at every ten seconds, of which nothing happens in between."""
    rows = [
        {
            "node": node,
            "kind": kind,
            "at": DAY + n * STEP,
            "boot": 1,
            "serial": serial,
            "peer": peer if kind in CHANGES else None,
        }
        for serial, ((node, peer), kind, n) in enumerate(turns)
    ]
    truth: dict[Any, int] = defaultdict(int)
    for pair in {pair for pair, _kind, _n in turns}:
        mine = [row for row in rows if (row["node"], row["peer"]) == pair]
        told_at = [row["at"] for row in rows if row["node"] == pair[0] and row["at"] < DAY + HOUR]
        last = max(told_at, default=0)
        # A sign of life just before the end of an hour is one for the rest of it.
        last = DAY + HOUR if last == DAY + HOUR - STEP else last
        for now in range(DAY, DAY + HOUR, STEP):
            before = [row for row in mine if row["at"] <= now]
            latest = max(before, key=lambda row: (row["at"], row["serial"]), default=None)
            if latest is not None and latest["kind"] == "link_down" and now < last:
                truth[*pair, now - now % MINUTE] += STEP
    assert down(rows) == truth


def change(kind: str, at: int, **others: Any) -> Row:
    return {"node": "a", "peer": "b", "kind": kind, "at": at, "boot": 1, "serial": 1, **others}


def test_a_link_that_is_down_over_the_hour_is_down_in_both():
    rows = [
        change("link_down", DAY + HOUR - SECOND),
        change("link_up", DAY + HOUR + MINUTE + SECOND),
    ]
    assert down(rows) == {("a", "b", DAY + HOUR - MINUTE): SECOND}
    assert down(rows, DAY + HOUR) == {
        ("a", "b", DAY + HOUR): MINUTE,
        ("a", "b", DAY + HOUR + MINUTE): SECOND,
    }


def test_a_minute_in_which_a_link_was_up_again_has_no_row():
    rows = [change("link_down", DAY + SECOND), *alive(DAY + HOUR)]
    back = change("link_up", DAY + 2 * MINUTE, serial=2)
    made = by_key(links(DAY, told(rows)).to_pylist(), "down_us")
    assert len(made) == 60
    # Where it ends with a minute, the next has nothing but that.
    assert by_key(links(DAY, told([*rows, back])).to_pylist(), "down_us", "ups") == {
        ("a", "b", DAY): (MINUTE - SECOND, 0),
        ("a", "b", DAY + MINUTE): (MINUTE, 0),
        ("a", "b", DAY + 2 * MINUTE): (0, 1),
    }
    last = {"node": "a", "kind": "node_alive", "at": DAY + 2 * MINUTE}
    assert len(links(DAY, told([rows[0], last]))) == 2


def seconds_down(folder: Path, rows: list[Row], hours: int) -> list[int]:
    """For how long the link from a to b was down in each hour, by files of events."""
    files = {}
    for name in {hour(row["at"]) for row in rows}:
        mine = [row for row in rows if hour(row["at"]) == name]
        files[name] = [str(folder / f"{name}.parquet")]
        pq.write_table(pa.Table.from_pylist(mine, SCHEMA), *files[name])
    found = []
    for begin in range(DAY, DAY + hours * HOUR, HOUR):
        read = told_of(sources(hour(begin), files))
        found.append(sum(links(begin, read)["down_us"].to_pylist()) // SECOND)
    return found


def alive(until: int) -> list[Row]:
    """Signs of life of a node."""
    every = range(DAY, until + 1, STEP)
    return [{"node": "a", "kind": "node_alive", "at": at} for at in every]


def test_a_link_is_down_in_all_hours_until_it_is_up(tmp_path: Path):
    gone = change("link_down", DAY + 30 * MINUTE)
    back = change("link_up", DAY + 4 * HOUR + 10 * MINUTE, serial=2)
    # Another link of the same node is up all the time.
    other = change("link_up", DAY, peer="c")
    rows = [gone, back, other, *alive(DAY + 6 * HOUR)]
    assert seconds_down(tmp_path, rows, 6) == [1800, 3600, 3600, 3600, 600, 0]


def test_a_link_is_down_for_as_long_as_its_node_lives(tmp_path: Path):
    rows = [change("link_down", DAY + 30 * MINUTE), *alive(DAY + 3 * HOUR + 20 * MINUTE)]
    assert seconds_down(tmp_path, rows, 6) == [1800, 3600, 3600, 1200, 0, 0]


def test_a_link_of_a_later_life_of_its_node_is_down_by_what_that_tells(tmp_path: Path):
    rows = [
        change("link_down", DAY, serial=8),
        change("link_up", DAY + MINUTE, serial=9),
        change("link_up", DAY + 2 * MINUTE, boot=2, serial=1),
        change("link_down", DAY + 40 * MINUTE, boot=2, serial=2),
    ]
    assert seconds_down(tmp_path, [*rows, *alive(DAY + 2 * HOUR)], 2) == [60 + 1200, 3600]


def test_a_link_to_a_node_that_is_gone_is_not_down_forever(tmp_path: Path):
    rows = [change("link_down", DAY + 30 * MINUTE), *alive(DAY + 30 * HOUR)]
    down_hours = [1800, *[3600] * DOWN_HOURS]
    assert seconds_down(tmp_path, rows, DOWN_HOURS + 3) == [*down_hours, 0, 0]


def test_what_happens_at_once_is_in_the_order_in_which_it_was_told():
    later = DAY + MINUTE
    end = {"node": "a", "kind": "node_alive", "at": later + SECOND}
    up, gone = change("link_up", later), change("link_down", later)
    assert down([up | {"serial": 3}, gone | {"serial": 2}, end]) == {}
    assert down([up | {"serial": 2}, gone | {"serial": 3}, end]) == {("a", "b", later): SECOND}
    # A later life of its node tells later.
    assert down([up | {"serial": 2}, gone | {"boot": 2}, end]) == {("a", "b", later): SECOND}


def test_what_messages_say_of_a_link_is_in_one_row_with_what_its_nodes_tell():
    beat = change("link", DAY, round_trip=3, ahead=-4)
    ways = [
        {"node": "a", "peer": "b", "window": DAY, "handed": 4, "arrived": 3, "delay_p50": 7.0},
        # Of what came from a node that did not tell that it handed it on.
        {"node": "a", "peer": "c", "window": DAY - MINUTE, "handed": 0, "arrived": 2},
    ]
    columns = arrow_schema(TABLES["links"])
    names = ("node", "peer", "window", "handed", "arrived", "delay_p50", "delay_p99")
    schema = pa.schema([columns.field(name) for name in names])
    made = links(DAY, told([beat]), pa.Table.from_pylist(ways, schema))
    assert set(made.column_names) == {*columns.names} - {"hour"}
    said = ("handed", "arrived", "success", "delay_p50", "beats", "round_trip", "ahead", "down_us")
    assert by_key(made.to_pylist(), *said) == {
        ("a", "b", DAY): (4, 3, 0.75, 7.0, 1, 3, -4, 0),
        ("a", "c", DAY - MINUTE): (0, 2, None, None, 0, None, None, 0),
    }


def test_of_an_hour_without_a_word_there_are_no_rows():
    assert links(DAY, told([])).num_rows == 0


def test_what_probes_found_is_by_the_role_that_hands_messages_over():  # R15
    def probe(node: str, at: int, **told: Any) -> Row:
        about = {"node": node, "kind": "room_link", "at": at, "came_from": "a", "peer": "b"}
        return {**about, "role": "proxy", "n": 10, "failed": 1, **told}

    rows = [
        probe("c", DAY, delay_p50=40, delay_p99=90),
        probe("d", DAY + SECOND, failed=0, delay_p50=50, delay_p99=60),
        probe("c", DAY + SECOND, role="broker", failed=10),
        probe("c", DAY + MINUTE, n=5, failed=0, delay_p50=3, delay_p99=4),
        change("link", DAY, round_trip=3, ahead=-4),
    ]
    found = {
        (row["role"], row["window"]): tuple(
            row[name] for name in ("probes", "failed", "probe_p50", "probe_p99", "beats")
        )
        for row in links(DAY, told(rows)).to_pylist()
    }
    assert found == {
        ("proxy", DAY): (20, 1, 50, 90, 0),
        ("broker", DAY): (10, 10, None, None, 0),
        ("proxy", DAY + MINUTE): (5, 0, 3, 4, 0),
        (None, DAY): (0, 0, None, None, 1),
    }
