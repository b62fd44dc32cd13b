"""What is counted of notes, on cases that one can follow. P9"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from chappe.events.eventlog import EventLog
from chappe.events.eventrecorder import EventRecorder
from chappe.events.parquet import EventTable
from chappe.events.pushrecorder import Ack, PushRecorder, Told
from chappe.pipeline.jobs import COUNTS, jobs
from chappe.pipeline.paths import paths_of
from chappe.pipeline.schema import MESSAGE_NAMES
from chappe.pipeline.silver import Check
from chappe.pipeline.sums import JOBS, Sums
from tests.pipeline.tales import OPTIONS, clocks, table
from tests.pipeline.traffic import DAY, SECOND, Row

H0 = "2026-03-16T00"
NOTE = f"m0a00001{DAY // SECOND:08x}"
ABOUT = {"label": NOTE, "job": "j", "app": "a", "node": "n", "boot": 1, "share": 1.0}


def job(*told: Row) -> dict[str, Any]:
    """The job of one note, of what is told of it a millisecond after the other."""
    rows = [{**ABOUT, "serial": n, "at": DAY + n * 1000, **row} for n, row in enumerate(told)]
    paths, trails = paths_of(table(rows), H0, clocks({}), OPTIONS)
    assert trails is not None
    [row] = jobs(dict(Sums(paths, trails, OPTIONS).all())[JOBS]).to_pylist()
    return dict(row)


def counts(*told: Row) -> dict[str, int]:
    found = job(*told)
    return {name: found[name] for name in COUNTS if found[name]}


def sent(n: int, **columns: Any) -> Row:
    return {"kind": "push_sent", "n": n, **columns}


def handed(why: str = "live", **columns: Any) -> Row:
    return {"kind": "push_handed", "reason": why, **columns}


def acked(why: str = "live", **columns: Any) -> Row:
    return {"kind": "push_acked", "reason": why, **columns}


def dropped(reason: str, **columns: Any) -> Row:
    return {"kind": "push_dropped", "reason": reason, **columns}


def test_a_client_counts_once_however_often_it_is_handed_a_note() -> None:
    one, two = {"client": "c1"}, {"client": "c2"}
    told = (handed(**one), handed("again", **one), handed("login", **one), handed(**two))
    assert counts(sent(3, offline=1), *told, acked("login", **one)) == {
        "aimed": 3,
        "sent": 2,
        "arrived": 1,
        "offline": 1,
        "waiting": 2,
    }


def test_what_is_handed_again_on_a_connection_is_handed_once() -> None:
    told = (handed(n=4), handed("again", n=3), handed("login", n=2), acked(n=2))
    assert counts(sent(10), *told) == {
        "aimed": 10,
        "sent": 6,
        "arrived": 2,
        "offline": 6,
        "waiting": 8,
    }


def test_no_more_are_handed_a_note_than_it_is_sent_to_and_no_fewer_than_have_it() -> None:
    assert counts(sent(5), handed(n=4), handed("login", n=3))["sent"] == 5
    # Of a comet that was killed it is not known what it handed out.
    assert counts(sent(5), handed(n=1), acked(n=3))["sent"] == 3
    assert counts(sent(5), acked(client="c1"))["sent"] == 1


def test_who_does_not_get_it_any_more_is_dropped_and_some_of_them_withdrawn() -> None:
    drops = (dropped("collapsed", client="c1"), dropped("expired", client="c2"))
    assert counts(sent(4, offline=4), *drops) == {
        "aimed": 4,
        "offline": 4,
        "dropped": 2,
        "withdrawn": 1,
        "waiting": 2,
    }
    # Another device of the user had it.
    told = (handed(client="c1"), handed(client="c2"), acked(client="c1"))
    once = counts(sent(2, offline=0), *told, dropped("withdrawn", client="c2"))
    assert (once["dropped"], once["withdrawn"], once.get("waiting", 0)) == (1, 1, 0)
    # Who had it already has it.
    told = (acked(client="c1"), dropped("cancelled"))
    assert counts(sent(4, offline=3), *told) == {
        "aimed": 4,
        "sent": 1,
        "arrived": 1,
        "offline": 3,
        "dropped": 3,
        "withdrawn": 3,
    }


def test_who_had_just_left_was_offline() -> None:
    absent = {"kind": "push_absent", "n": 2}
    assert counts(sent(5, offline=1), absent)["offline"] == 3


def test_times_are_of_those_who_were_there_and_are_counted_by_how_many_they_are() -> None:
    slow = acked("login", n=5, at=DAY + 9 * SECOND)
    found = job(sent(9, came=DAY), acked(n=3, came=DAY + 1000), acked(client="c1"), slow)
    assert found["max"] == 2000
    assert [one["count"] for one in found["buckets"]] == [3, 1]
    assert job(sent(9), slow)["p99"] is None


def test_of_a_note_that_nobody_tells_of_sending_it_is_known_who_has_it() -> None:
    found = job(handed(client="c1"), acked(client="c1"))
    assert (found["aimed"], found["arrived"], found["expires"]) == (1, 1, None)
    assert (found["arrived_ratio"], found["clicked_ratio"]) == (1.0, 0.0)
    nothing = job(handed(n=0))
    assert (nothing["aimed"], nothing["arrived_ratio"], nothing["clicked_ratio"]) == (0, None, None)


def test_what_comets_tell_is_what_jobs_count() -> None:
    """From the recorder's words to the table, by way of the files."""
    tables: list[pa.Table] = []
    files = EventTable(lambda _hour, rows: tables.append(rows))

    class Log:
        def append(self, record: bytes, done: object, *, idle: bool) -> None:
            assert files.take(b"\x91" + record)

    class Timer:
        def call_later(self, delay: float, callback: object) -> None:
            """It need not ring."""

    events = EventLog("n1", Log(), Timer(), lambda: DAY + SECOND)
    push = PushRecorder(EventRecorder(events, 0.01, lambda: DAY + SECOND))
    note, expires = Told("a", NOTE, "j"), DAY + 86_400 * SECOND
    clients = [f"c{n}" for n in range(70_000)]
    push.sent(note, "topic:news", 100_000, 5, DAY, expires, went_to=["n1"])
    push.handed(note, clients, "live", DAY + 10, "n1")
    push.acked(Ack(client, note, "live", DAY + SECOND) for client in clients[:60_000])
    push.handed(note, clients[:3], "login")
    push.clicked(note, "c1")
    push.dropped(note, "cancelled")
    events.start()
    files.flush()
    rows = pa.concat_tables(tables)
    assert rows.num_rows < 20
    check = Check(rows)
    assert check.problems().null_count == rows.num_rows
    mine = rows.filter(pa.array(check.belongs)).select(MESSAGE_NAMES)
    paths, trails = paths_of(mine, H0, clocks({}), OPTIONS)
    assert trails is not None
    [row] = jobs(dict(Sums(paths, trails, OPTIONS).all())[JOBS]).to_pylist()
    assert {name: row[name] for name in COUNTS} == {
        "aimed": 100_000,
        "sent": 70_003,
        "arrived": 60_000,
        "clicked": 1,
        "offline": 30_000,
        "dropped": 40_000,
        "withdrawn": 40_000,
        "waiting": 0,
    }
    assert (row["born"], row["expires"], row["max"]) == (DAY, expires, SECOND)
