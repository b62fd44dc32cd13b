"""Logs of nodes that were killed are sealed by somebody else, who gets in nobody's way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from chappe.blocking import connect
from chappe.events.record import AT, GROUP, MESSAGE, TARGET, Run, encode_chunk
from chappe.events.schema import VERSION
from chappe.events.slate import BYTES, Slate
from chappe.events.tail import Tail
from chappe.log.fs import OsFs
from chappe.log.writer import LOCK
from chappe.node.sealing import Sealed, Sealer, seal
from chappe.node.slates import left_slates
from chappe.pipeline.bronze import Ledger, found
from tests.events.tables import check_serials, chunks_of, of, rows, until_told
from tests.events.test_parquet import LATE, Segment
from tests.faults.process import NodeProcess


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NodeProcess]:
    monkeypatch.delenv("CHAPPE_EVENTS_ENABLED")
    node = NodeProcess(tmp_path, "[events]\nenabled = true\nshare = 1.0\nseal_s = 3600\n")
    yield node
    node.kill()


def test_a_log_is_sealed_once_nobody_has_written_it_from_one_look_to_the_next(
    node: NodeProcess,
) -> None:
    events = node.data / "events"
    sealer = Sealer(events)
    for _ in range(2):
        until_told(events / "_log/node")
        assert sealer.look() == Sealed()
    until_told(events / "_log/node")
    node.kill()
    # It may come back at once.
    assert sealer.look() == Sealed()
    assert not list(events.rglob("*.parquet"))
    assert sealer.look().nodes == ["node"]
    assert len(of(rows(events), "node_gone")) == 1
    for _ in range(3):
        # All of it is sealed: it is not even locked.
        assert sealer.look() == Sealed()
    node.start()
    until_told(events / "_log/node")
    node.kill()
    assert [sealer.look().nodes for _ in range(3)] == [[], ["node"], []]
    assert len(of(rows(events), "node_gone")) == 2


def test_a_log_that_is_silent_and_in_use_is_sealed_when_it_is_free(node: NodeProcess) -> None:
    events = node.data / "events"
    until_told(events / "_log/node")
    node.kill()
    sealer = Sealer(events)
    held = OsFs().lock(str(events / "_log/node" / LOCK))
    assert [sealer.look().alive for _ in range(3)] == [[], ["node"], ["node"]]
    held.close()
    assert sealer.look().nodes == ["node"]


def test_a_folder_without_logs_has_none_to_seal(tmp_path: Path) -> None:
    assert Sealer(tmp_path / "nowhere").look() == Sealed()
    (tmp_path / "_log" / "n1").mkdir(parents=True)
    sealer = Sealer(tmp_path)
    assert [sealer.look().events for _ in range(2)] == [0, 0]


class Taken:
    """What a pipeline took of a folder of events: it looks at names, and at each once."""

    def __init__(self, events: Path, tables: Path) -> None:
        self._events = events
        self._ledger = Ledger(tables)
        self._content: dict[Path, bytes] = {}

    def take(self) -> list[Path]:
        """Take what is new, and see that what was taken is as it was."""
        for file, content in self._content.items():
            assert file.read_bytes() == content, "that is taken already"
        fresh = self._ledger.new(found([self._events]))
        self._ledger.plan(found([self._events]))
        self._content |= {file: file.read_bytes() for file in fresh}
        return fresh


def leave_slate(log: Path, boot: int, *runs: Run, serial: int = 1) -> None:
    """A life is killed, and these are on its slate; the log has what it told before."""
    memory = bytearray(BYTES)
    slate = Slate(memory)
    for run in runs:
        assert slate.put(encode_chunk((VERSION, "a", boot, serial, [run])))
    (log / f"slate-{boot}").write_bytes(memory)


def heard(log: Path) -> Tail:
    """What a start finds in the last segment."""
    assert len(list(log.glob("*.log"))) == 1, "what is copied goes"
    tail = Tail()
    for chunk in chunks_of(log):
        tail.take(b"\x91" + encode_chunk(chunk))
    return tail


STORED: Run = ("stored", 1, {AT: LATE, MESSAGE: 70, TARGET: "queue:jobs"}, {})
ACKED: Run = ("acked", 1, {AT: LATE, MESSAGE: 70, TARGET: "queue:jobs", GROUP: "g"}, {})
ALIVE: Run = ("node_alive", 1, {AT: LATE}, {})


def test_what_a_copied_log_gets_is_a_table_of_its_own(tmp_path: Path) -> None:
    events, tables = tmp_path / "events", tmp_path / "tables"
    log = events / "_log/a"
    Segment(log).add_raw(encode_chunk((VERSION, "a", LATE - 3, 1, [ALIVE], (LATE, {"b": 5}))))
    leave_slate(log, LATE - 3, STORED, serial=2)
    taken = Taken(events, tables)
    assert seal(events).events == 3
    # The log as it was, and what was added.
    assert len(taken.take()) == 2
    # The node comes back, tells what it had no time for, and is killed before it writes that.
    leave_slate(log, LATE - 2, ACKED)
    assert seal(events).events == 2
    (file,) = taken.take()
    told = pq.read_table(file, partitioning=None).to_pylist()
    assert [(row["boot"], row["kind"]) for row in told] == [
        (LATE - 2, "acked"),
        (LATE - 2, "node_gone"),
    ]
    # To do it again changes nothing, and neither does a start that comes to nothing.
    assert seal(events).events == 0
    leave_slate(log, LATE - 1)
    assert seal(events).events == 0
    assert taken.take() == []
    assert left_slates(log) == []
    table = rows(events)
    check_serials(table)
    assert [(row["boot"] - LATE, row["kind"]) for row in table] == [
        (-3, "node_alive"),
        (-3, "stored"),
        (-3, "node_gone"),
        (-2, "acked"),
        (-2, "node_gone"),
    ]
    # All that the next life need know to tell nothing of it again, however often it was sealed.
    assert heard(log).position("b") == 5
    assert heard(log).heard == {("stored", 70, ""), ("acked", 70, "g")}


def test_a_kill_in_the_middle_of_sealing_doubles_nothing(tmp_path: Path) -> None:
    log = tmp_path / "_log/a"
    Segment(log).add_raw(encode_chunk((VERSION, "a", LATE - 3, 1, [ALIVE], (LATE, {"b": 5}))))
    leave_slate(log, LATE - 3, STORED, serial=2)
    leave_slate(log, LATE - 2, ACKED)
    kept = {slate: slate.read_bytes() for slate in left_slates(log)}
    assert seal(tmp_path).events == 4
    for slate, content in kept.items():
        slate.write_bytes(content)
    assert seal(tmp_path).events == 0
    assert left_slates(log) == []
    check_serials(rows(tmp_path))


def test_what_was_taken_stays_and_nothing_is_told_twice_though_lives_end_and_begin(
    node: NodeProcess, tmp_path: Path
) -> None:
    events = node.data / "events"
    taken = Taken(events, tmp_path / "tables")
    for _ in range(3):
        with connect(node.addresses["websocket"], as_="user:ann") as ann:
            ann.create("queue:jobs")
            ann.send("queue:jobs", 1)
            node.kill()
        seal(events)
        assert taken.take()
        node.start()
        # As soon as it is there.
        node.kill()
        seal(events)
        taken.take()
        node.start()
    node.stop()
    taken.take()
    table = rows(events)
    check_serials(table)
    stored = [row["message"] for row in of(table, "stored")]
    assert len(stored) == len(set(stored)) == 3
    assert taken.take() == []
