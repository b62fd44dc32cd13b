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
from chappe.pipeline.online import of_hour, places_since, write_sessions
from chappe.pipeline.options import Options
from chappe.pipeline.parts import Attempt, write_part
from chappe.pipeline.schema import EVENT, TABLES, TURNOVER, arrow_schema
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


def without_hour(name: str) -> pa.Schema:
    schema = arrow_schema(TABLES[name])
    return schema.remove(schema.get_field_index("hour"))


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


CHANGES = st.tuples(
    st.sampled_from(["a", "b"]),
    st.integers(0, 400),
    st.integers(0, 9),
    st.integers(0, 9),
    st.integers(0, 3),
)


@given(st.lists(CHANGES, max_size=60, unique_by=lambda one: one[:2]), st.integers(0, 400))
def test_who_is_online_is_all_that_came_less_all_that_went(
    changes: list[tuple[str, int, int, int, int]], since: int
):
    """Of whole hours, one after another; how many there were before the first is known."""
    online: Counter[tuple[str, str]] = Counter()
    truth = []
    by_hour: dict[str, list[Row]] = defaultdict(list)
    cuts: dict[str, list[Cut]] = defaultdict(list)
    begun = None
    for n, app, came, went, cut in sorted((n, app, *more) for app, n, *more in changes):
        if n >= since and begun is None:
            begun = dict(online)
        online[app, "tcp"] += came - went - cut
        if n < since:
            continue
        window = DAY + n * MINUTE
        place = {"app": app, "edge": "tcp", "window": window}
        told = {"opened": came, "closed": went, "reconnects": came // 2}
        told["duration_p50"] = 1.5 * n if went else None
        by_hour[hour(window)].append({**place, **told, "duration_p99": None})
        if cut:
            cuts[hour(window)].append(Cut(app, "tcp", window, cut))
        if came + went + cut:
            gone, now = went + cut, online[app, "tcp"]
            share = gone / (now + gone) if now + gone > 0 else None
            row = {"hour": hour(window), **by_hour[hour(window)][-1], "cut": cut}
            truth.append({**row, "online": now, "churn": share})
    found = []
    left = dict(online) if begun is None else begun
    for name in sorted(by_hour):
        rows = pa.Table.from_pylist(by_hour[name], arrow_schema(TURNOVER))
        found += of_hour(name, rows, cuts[name], left).to_pylist()
    assert sorted(found, key=lambda row: (row["window"], row["app"])) == truth
    assert +Counter(left) == +online


class Runs:
    """Runs over tables of sessions: each is told who came and went, and who died."""

    def __init__(self, tables: Path) -> None:
        self._tables = tables
        self._run = 0

    def run(self, *came: tuple[str, int, int, int], dead: int | None = None) -> None:
        """App, minute, how many opened and closed; all on one node."""
        self._run += 1
        attempt = Attempt.begin(self._tables, self._run)
        turnover: dict[str, list[Row]] = defaultdict(list)
        for app, n, opened, closed in came:
            place = {"app": app, "edge": "tcp", "window": DAY + n * MINUTE}
            counts = {"opened": opened, "closed": closed, "reconnects": 0}
            turnover[hour(DAY + n * MINUTE)].append({**place, **counts})
        files = {}
        for name, rows in turnover.items():
            stayed = [stay("n1", row["opened"], row["closed"], app=row["app"]) for row in rows]
            stays = pa.Table.from_pylist(stayed, without_hour("stays"))
            write_part(attempt, "stays", name, 0, stays)
            files[name] = [str(self._tables / f"{self._run}-{name}.parquet")]
            pq.write_table(pa.Table.from_pylist(rows, arrow_schema(TURNOVER)), *files[name])
        Table(self._tables, "stays").commit(attempt, turnover)
        known = [life("n1", DAY + dead * MINUTE, died=True)] if dead is not None else []
        made = write_sessions(attempt, {*turnover}, files, known)
        Table(self._tables, "sessions").commit(attempt, made)

    def online(self) -> list[tuple[str, int, int]]:
        rows = read(self._tables, "sessions").to_pylist()
        return sorted((row["app"], (row["window"] - DAY) // MINUTE, row["online"]) for row in rows)


def test_a_run_goes_on_from_what_others_made(tmp_path: Path):
    runs = Runs(tmp_path)
    runs.run(("a", 0, 5, 0), ("b", 1, 3, 0), ("a", 61, 0, 1))
    runs.run(("a", 600, 2, 0))
    # One that was not seen since long ago, and one that is new.
    runs.run(("b", 660, 1, 0), ("c", 661, 7, 0))
    assert runs.online() == [
        *(("a", 0, 5), ("a", 61, 4), ("a", 600, 6)),
        *(("b", 1, 3), ("b", 660, 4)),
        ("c", 661, 7),
    ]
    # What is told late changes all that follows.
    runs.run(("a", 130, 0, 3), ("d", 131, 1, 0))
    later = [
        *(("a", 0, 5), ("a", 61, 4), ("a", 130, 1), ("a", 600, 3)),
        *(("b", 1, 3), ("b", 660, 4)),
        *(("c", 661, 7), ("d", 131, 1)),
    ]
    assert runs.online() == later
    # So does a death that is found out late, and one that turns out to have been none.
    runs.run(("d", 900, 1, 0), dead=610)
    assert runs.online() == [
        *(("a", 0, 5), ("a", 61, 4), ("a", 130, 1), ("a", 600, 3), ("a", 610, 0)),
        *(("b", 1, 3), ("b", 610, -1), ("b", 660, 0)),
        *(("c", 610, -7), ("c", 661, 0)),
        *(("d", 131, 1), ("d", 610, -1), ("d", 900, 0)),
    ]
    runs.run(("d", 961, 1, 0))
    assert runs.online() == [*later, ("d", 900, 2), ("d", 961, 3)]


def test_who_was_cut_off_in_the_first_minute_that_is_made_anew_stays_so(tmp_path: Path):
    runs = Runs(tmp_path)
    runs.run(("a", 0, 5, 0), dead=60)
    # The hour before is made anew, too, and nobody else was cut off than before.
    runs.run(("a", 125, 1, 1), dead=60)
    assert runs.online() == [("a", 0, 5), ("a", 60, 0), ("a", 125, 0)]


def test_where_something_is_told_of_around_a_time_is_looked_at_by_hours_that_may_be_wrong_by_one():
    """Of the hour before a time it may be that something was after it, and the other way round."""

    def places(now: int, *hours: int) -> set[tuple[str, str]]:
        told = [{"hour": hour(DAY + n * HOUR), **stay("n1", 1, 0)} for n in hours]
        return places_since(sessions.stayed([table_of_stays(*told)]), [], DAY + now * HOUR)

    assert places(5, 1, 4) == places(5, 5, 9) == places(5, 4) == {("a", "tcp")}
    # Nothing since, and nothing before.
    assert places(5, 1, 3) == places(5, 6, 9) == set()
