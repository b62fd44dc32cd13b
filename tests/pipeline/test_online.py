"""How many are online, hour after hour; and runs that go on from what others made."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from chappe.pipeline import sessions
from chappe.pipeline.online import of_hour, places_since, write_sessions
from chappe.pipeline.parts import Attempt, write_part
from chappe.pipeline.schema import TABLES, TURNOVER, arrow_schema
from chappe.pipeline.sessions import Cut
from chappe.pipeline.table import Table, read
from tests.pipeline.test_sessions import life, stay, table_of_stays
from tests.pipeline.traffic import DAY, HOUR, MINUTE, Row, hour

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


def without_hour(name: str) -> pa.Schema:
    schema = arrow_schema(TABLES[name])
    return schema.remove(schema.get_field_index("hour"))


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
