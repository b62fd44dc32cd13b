"""Who comes, goes and comes back, who is cut off, and who is online then."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.pipeline import presence, sessions
from chappe.pipeline.clocks import Clocks
from chappe.pipeline.lives import Life
from chappe.pipeline.options import Options
from chappe.pipeline.parts import Attempt, write_part
from chappe.pipeline.schema import EVENT, TABLES, arrow_schema
from chappe.pipeline.sessions import Cut
from chappe.pipeline.sketch import ERROR
from chappe.pipeline.table import Table, read
from tests.pipeline.tales import clocks
from tests.pipeline.traffic import DAY, HOUR, MINUTE, SECOND, Node, Row, World, hour

OPTIONS = Options()
H0, H1 = hour(DAY), hour(DAY + HOUR)
WHO = {"app": "a", "target": "user/u", "edge": "tcp", "session": "s"}
MOVED = ("window", "opened", "closed", "reconnects")


def events(rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(rows, arrow_schema(EVENT))


def world(*nodes: Node) -> World:
    made = World(*nodes)
    for node in nodes:
        made.start(node.name, DAY - HOUR)
    return made


def turnover(rows: pa.Table, name: str, right: Clocks) -> pa.Table:
    return sessions.turnover(sessions.moves(rows, name, right, OPTIONS))


def moved(rows: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in MOVED) for row in rows.to_pylist()]


def test_who_comes_back_soon_is_a_reconnect_wherever_it_was():
    here = world(Node("n1"), Node("n2"))
    here.tell("n1", DAY + SECOND, "session_opened", **WHO)
    here.tell("n1", DAY + MINUTE, "session_closed", **WHO, came=DAY + SECOND)
    here.tell("n2", DAY + MINUTE + SECOND, "session_opened", **WHO)
    here.tell("n2", DAY + 2 * MINUTE, "session_closed", **WHO, came=DAY + MINUTE + SECOND)
    here.tell("n2", DAY + 4 * MINUTE, "session_opened", **WHO)
    made = turnover(events(here.rows), H0, clocks({}))
    assert moved(made) == [
        (DAY, 1, 0, 0),
        (DAY + MINUTE, 1, 1, 1),
        (DAY + 2 * MINUTE, 0, 1, 0),
        (DAY + 4 * MINUTE, 1, 0, 0),
    ]
    longest = [row["duration_p99"] for row in made.to_pylist()]
    assert longest[1:3] == pytest.approx([59 * SECOND] * 2, rel=ERROR)
    assert (longest[0], longest[3]) == (None, None)


@pytest.mark.parametrize(("later", "back"), [(0, 1), (1, 0)])
def test_who_is_back_just_in_time_came_back(later: int, back: int):
    here = world(Node("n1"))
    here.tell("n1", DAY, "session_closed", **WHO, came=DAY)
    soon = DAY + OPTIONS.reconnect_ms * 1000
    here.tell("n1", soon + later, "session_opened", **WHO)
    closed, opened = turnover(events(here.rows), H0, clocks({})).to_pylist()
    assert (opened["opened"], opened["reconnects"]) == (1, back)
    # One that ends as it begins has lasted, for next to nothing.
    assert closed["duration_p50"] == pytest.approx(1)


def test_an_end_that_is_told_to_be_before_its_begin_has_lasted_for_no_time():
    here = world(Node("n1"))
    here.tell("n1", DAY, "session_closed", **WHO, came=DAY + SECOND)
    here.tell("n1", DAY, "session_closed", **WHO)
    [row] = turnover(events(here.rows), H0, clocks({})).to_pylist()
    assert (row["closed"], row["duration_p50"]) == (2, None)


def test_hours_are_looked_through_with_those_around_them(tmp_path: Path):
    """The second node's clock is two seconds ahead: it told of what was before midnight after it,
    and of who was back by one as if that had been later."""
    ahead = 2 * SECOND
    here = world(Node("n1"), Node("n2", ahead))
    here.tell("n2", DAY - SECOND, "session_opened", **WHO)
    here.tell("n2", DAY + HOUR - SECOND, "session_closed", **WHO, came=DAY - SECOND)
    here.tell("n1", DAY + HOUR + SECOND, "session_opened", **WHO)
    table = Table(tmp_path, "events")
    for name in {hour(row["at"]) for row in here.rows}:
        mine = [row for row in here.rows if hour(row["at"]) == name]
        write_part(Attempt(tmp_path, 1, "given"), "events", name, 0, events(mine))
    table.commit(Attempt(tmp_path, 1, "given"), None)
    asked = presence.hours_of(table, {H0, H1}, {H1})
    before, after = hour(DAY - HOUR), hour(DAY + 2 * HOUR)
    assert [(one.hour, one.lives, one.stays, len(one.near)) for one in asked] == [
        (before, False, False, 1),
        (H0, True, False, 2),
        (H1, True, True, 1),
        (after, False, False, 1),
    ]
    right = clocks({("n2", DAY + n * MINUTE): -ahead for n in range(61)})
    rows = pa.RecordBatch.from_pylist([one._asdict() for one in asked])
    turnover, attempt = tmp_path / "turnover", Attempt.begin(tmp_path, 2)
    assert not [*presence._look_through([rows], attempt, turnover, right, OPTIONS)]
    presence.put_pieces_together(asked, turnover)
    made = [pq.read_table(file) for file in sorted(turnover.glob("*.parquet"))]
    assert moved(pa.concat_tables(made)) == [
        (DAY - MINUTE, 1, 0, 0),
        (DAY + HOUR - MINUTE, 0, 1, 0),
        (DAY + HOUR, 1, 0, 1),
    ]
    for name in ("lives", "stays"):
        Table(tmp_path, name).commit(attempt, None)
    # Nobody told of its life in those hours; stays are by the hour in which they were told.
    assert read(tmp_path, "lives").num_rows == 0
    stayed = sorted(read(tmp_path, "stays").to_pylist(), key=lambda row: row["node"])
    assert [(row["hour"], row["node"], row["opened"], row["closed"]) for row in stayed] == [
        (H1, "n1", 1, 0),
        (H1, "n2", 0, 1),
    ]


VISITS = st.tuples(
    st.integers(0, 8), st.sampled_from(["a", "b"]), st.booleans(), st.integers(0, 20 * MINUTE)
)


@given(st.lists(VISITS, max_size=100), st.integers(-5, 5))
def test_who_comes_back_is_found_by_the_clock_of_all(
    visits: list[tuple[int, str, bool, int]], ahead_s: int
):
    """Node b's clock is ahead, and is put right."""
    ahead = {"a": 0, "b": ahead_s * SECOND}
    rows = [
        {
            "kind": "session_opened" if opens else "session_closed",
            "app": "app",
            "edge": "tcp",
            "target": f"user/{user}",
            "node": node,
            "boot": 1,
            "serial": n,
            "at": DAY + true + ahead[node],
            "came": None if opens else DAY + ahead[node] - SECOND,
        }
        for n, (user, node, opens, true) in enumerate(visits)
    ]
    right = clocks({("b", DAY + n * MINUTE): -ahead["b"] for n in range(-1, 22)})
    made = turnover(events(rows), H0, right).to_pylist()
    found = {row["window"]: Counter({name: row[name] for name in MOVED[1:]}) for row in made}
    truth: dict[int, Counter[str]] = defaultdict(Counter)
    last: dict[int, tuple[bool, int]] = {}
    ordered = sorted(enumerate(visits), key=lambda one: (one[1][3], one[1][1], one[0]))
    for _n, (user, _node, opens, true) in ordered:
        window = DAY + true - true % MINUTE
        truth[window]["opened" if opens else "closed"] += 1
        opened, when = last.get(user, (True, 0))
        if opens and not opened and true - when <= OPTIONS.reconnect_ms * 1000:
            truth[window]["reconnects"] += 1
        last[user] = (opens, true)
    assert {w: +c for w, c in found.items()} == {w: +c for w, c in truth.items()}


def stay(node: str, opened: int, closed: int, **columns: Any) -> Row:
    about = {"app": "a", "edge": "tcp", "node": node, "boot": 1}
    return {**about, "opened": opened, "closed": closed, **columns}


def table_of_stays(*rows: Row) -> pa.Table:
    return pa.Table.from_pylist([*rows], arrow_schema(TABLES["stays"]))


def life(node: str, alive: int | None, *, stopped: int | None = None, died: bool = False) -> Life:
    return Life(node, 1, DAY, alive, stopped, None, frozenset(), died)


def test_sessions_end_with_their_process():
    rows = [
        *(stay("dead", 3, 1), stay("dead", 1, 2), stay("dead", 2, 0, app="b")),
        # Another life of it goes on.
        stay("dead", 5, 0, boot=2),
        *(stay("stopped", 2, 1), stay("done", 2, 2), stay("here", 9, 0), stay("mute", 1, 0)),
    ]
    known = [
        life("dead", DAY + MINUTE + SECOND, died=True),
        life("dead", DAY + HOUR)._replace(boot=2),
        life("stopped", DAY + 2 * MINUTE - 1, stopped=DAY + 2 * MINUTE - 1),
        life("done", DAY + MINUTE, died=True),
        life("here", DAY + HOUR),
        life("mute", None, died=True),
    ]
    stays = [table_of_stays({"hour": H0, **row}) for row in rows]
    cuts = sessions.cut_off(sessions.stayed(stays), known)
    assert sorted(cuts) == [
        Cut("a", "tcp", DAY, 1),
        Cut("a", "tcp", DAY + MINUTE, 2),
        Cut("b", "tcp", DAY + MINUTE, 2),
    ]


@pytest.mark.parametrize("size", [1, 2, 9])
def test_stays_of_all_hours_are_put_together_however_they_are_read(size: int):
    rows = [
        {"hour": H1, **stay("n1", 1, 2)},
        {"hour": H0, **stay("n1", 3, 0)},
        {"hour": H1, **stay("n1", 1, 0, boot=2)},
        {"hour": H1, **stay("n1", 1, 0, app=None)},
        {"hour": H0, **stay("n1", 0, 1, app=None)},
    ]
    parts = [table_of_stays(*rows[n : n + size]) for n in range(0, len(rows), size)]
    assert sessions.stayed(parts).to_pylist() == [
        {**stay("n1", 4, 2), "first": H0, "last": H1},
        {**stay("n1", 1, 0, boot=2), "first": H1, "last": H1},
        {**stay("n1", 1, 1, app=None), "first": H0, "last": H1},
    ]
    assert not sessions.stayed([]).num_rows


def test_rows_are_made_anew_since_a_death_that_was_found_out_late():
    old, new = Cut("a", "tcp", DAY + 9 * HOUR, 1), Cut("a", "tcp", DAY + 5 * HOUR + MINUTE, 1)
    noon = hour(DAY + 12 * HOUR)
    assert sessions.since([noon, hour(DAY + 13 * HOUR)], [old], [old]) == DAY + 11 * HOUR
    assert sessions.since([noon], [old], [old, new]) == DAY + 4 * HOUR
    # One that was thought to be dead was not.
    assert sessions.since([noon], [old, new], [old]) == DAY + 4 * HOUR
    assert sessions.since([noon], [new], [new._replace(cut=2)]) == DAY + 4 * HOUR
