"""Of the hours around one, what matters in it is read, and nothing else."""

from __future__ import annotations

import zlib
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.pipeline import presence, sessions
from chappe.pipeline.options import Options
from chappe.pipeline.packing import hashed
from chappe.pipeline.parts import Attempt, write_part
from chappe.pipeline.reading import rows_of
from chappe.pipeline.schema import EVENT, arrow_schema
from chappe.pipeline.silver import once
from chappe.pipeline.table import Table
from tests.pipeline.tales import clocks
from tests.pipeline.traffic import DAY, HOUR, MINUTE, SECOND, Node, World, hour

OPTIONS = Options()
H0 = hour(DAY)
# Around the begin and the end of the hour, and in the middle.
TIMES = st.one_of(
    st.integers(-90, 90), st.integers(3600 - 90, 3600 + 90), st.integers(-3600, 7199)
).map(lambda s: DAY + s * SECOND)
USERS = st.sampled_from(["user/u", "user/v", None])
VISITS = st.lists(
    st.tuples(st.sampled_from(["n1", "n2"]), TIMES, st.booleans(), USERS), max_size=30
)


def saved(tables: Path, rows: pa.Table) -> Table:
    """A table of events, by the hours in which they were told."""
    attempt, table = Attempt.begin(tables, 1), Table(tables, "events")
    for name in {hour(at) for at in rows["at"].to_pylist()}:
        mine = pa.array([hour(at) == name for at in rows["at"].to_pylist()])
        write_part(attempt, "events", name, 0, once(rows.filter(mine)))
    table.commit(attempt, None)
    return table


@given(VISITS, st.integers(-60, 60), st.integers(1, 3))
def test_an_hour_is_as_if_all_of_the_hours_around_it_were_read_at_once(visits, ahead_s, pieces):
    ahead = ahead_s * SECOND
    world = World(Node("n1"), Node("n2", ahead))
    for name in world.nodes:
        world.start(name, DAY - 2 * HOUR)
    for node, at, opened, who in visits:
        about = {"app": "a", "edge": "tcp", "target": who}
        if opened:
            world.tell(node, at, "session_opened", **about)
        else:
            world.tell(node, at, "session_closed", **about, came=at - 9 * SECOND)
    rows = pa.Table.from_pylist(world.rows, arrow_schema(EVENT))
    right = clocks({("n2", DAY + n * MINUTE): -ahead for n in range(-130, 130)})
    with TemporaryDirectory() as folder:
        table, turnover = saved(Path(folder), rows), Path(folder, "turnover")
        [one] = [found for found in presence.hours_of(table, {H0}, {H0}) if found.hour == H0]
        every = [one._replace(piece=piece, pieces=pieces) for piece in range(pieces)]
        asked = pa.RecordBatch.from_pylist([piece._asdict() for piece in every])
        attempt = Attempt.begin(Path(folder), 2)
        list(presence._look_through([asked], attempt, turnover, right, OPTIONS))
        presence.put_pieces_together(every, turnover)
        found = pq.read_table(turnover / f"{H0}.parquet")
    whole = sessions.turnover(sessions.moves(rows, H0, right, OPTIONS))
    assert found.to_pylist() == whole.to_pylist()


def test_of_hours_around_only_the_times_that_may_matter_are_read(tmp_path: Path):
    world = World(Node("n1"))
    world.start("n1", DAY - HOUR)
    for n in range(60):
        who = {"app": "a", "edge": "tcp", "target": f"user/{n}"}
        world.tell("n1", DAY - HOUR + n * MINUTE + SECOND, "session_closed", **who)
    table = saved(tmp_path, pa.Table.from_pylist(world.rows, arrow_schema(EVENT)))
    wrong = clocks({("n1", DAY): -3 * SECOND, ("n2", DAY): 2 * SECOND})
    times = presence._times(H0, wrong, OPTIONS)
    assert times == (DAY - MINUTE - 3 * SECOND, DAY + HOUR + 3 * SECOND)
    rows = rows_of(table.files(), ["target"], sessions.KINDS, times)
    assert rows["target"].to_pylist() == ["user/59"]
    assert clocks({}).most() == 0


def test_an_hour_with_many_events_is_looked_at_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    world = World(Node("n1"))
    world.start("n1", DAY)
    world.live("n1", DAY, DAY + 2 * HOUR, every=MINUTE)
    table = saved(tmp_path, pa.Table.from_pylist(world.rows[:-30], arrow_schema(EVENT)))
    monkeypatch.setattr(presence, "ROWS_PER_PIECE", 30)
    later = hour(DAY + HOUR)
    found = presence.hours_of(table, {H0, later}, {H0})
    assert [one[3:] for one in found if one.hour == H0] == [(True, True, 0, 2), (False, True, 1, 2)]
    assert [one[3:] for one in found if one.hour == later] == [(True, False, 0, 1)]


def test_a_word_has_one_number_wherever_it_is():
    words = ["user/u", "", "user/ü", "user/u", "", "user/v"]
    assert hashed(pa.array(words)).tolist() == [zlib.crc32(word.encode()) for word in words]
    assert hashed(pa.array(words)[2:4]).tolist() == hashed(pa.array(words)).tolist()[2:4]
    assert hashed(pa.array([], pa.string())).tolist() == []


def test_pieces_are_put_together_as_if_they_had_been_one():
    world = World(Node("n1"))
    world.start("n1", DAY)
    for n, lasted in enumerate((1, 1, 1, 100, 1, 100)):
        world.tell("n1", DAY + n, "session_opened", app="a", edge="tcp", target=f"user/{n}")
        about = {"app": "a", "edge": "tcp", "target": f"user/{n}", "came": DAY - lasted * SECOND}
        world.tell("n1", DAY + SECOND, "session_closed", **about)
    rows = pa.Table.from_pylist(world.rows, arrow_schema(EVENT))

    def moves(taken: pa.Table) -> pa.Table:
        return sessions.moves(taken, H0, clocks({}), OPTIONS)

    whole = moves(rows)
    [row] = whole.to_pylist()
    assert sorted(one["count"] for one in row["buckets"]) == [2, 4]
    pieces = [moves(rows[:4]), moves(rows[4:]), moves(rows[:0])]
    assert sessions.merged(pieces).select(whole.column_names).to_pylist() == [row]
    assert sessions.merged(pieces[2:]).num_rows == 0
