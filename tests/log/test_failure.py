"""Q11: a full disk, a failed write, a failed sync; one process for one journal."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from chappe.errors import Overload, StorageError
from chappe.log.batch import Batch
from tests.log.rig import EIO, ENOSPC, Rig, until_refused, values


@pytest.mark.parametrize("call", ["append", "sync", "open", "truncate"])
def test_a_failed_disk_stops_the_journal_for_good(tmp_path, call):
    rig = Rig(tmp_path).open()
    for value in range(20):
        rig.put(value)
    rig.fs.faults[call] = (0, EIO, False)

    def step(value: int) -> None:
        rig.append(f"a{value}")
        rig.timer.step()
        rig.append(f"b{value}")
        rig.turn()

    count, refused = until_refused(step, "errno 5")
    # Those before the fault were told, those of it and behind it are unknown.
    outcomes = list(rig.outcomes.values())[20:]
    told = outcomes.count(None)
    assert told in (2 * count - 2, 2 * count - 1)
    assert outcomes[:told] == [None] * told
    for error in outcomes[told:]:
        assert isinstance(error, Overload)
        assert error.outcome_unknown
    assert not refused.outcome_unknown
    assert rig.journal.failed is not None
    # The fault is over; nothing is retried into success.
    rig.fs.calls.clear()
    rig.move(10.0)
    with pytest.raises(Overload):
        rig.append("later")
    with pytest.raises(Overload):
        rig.journal.begin_epoch(9)
    rig.turn()
    assert rig.fs.count("append") == rig.fs.count("sync") == 0
    # What was acknowledged can be read, now and after a restart.
    assert isinstance(rig.read(0), Batch)
    after = rig.again().open()
    assert after.state[: 20 + told] == rig.state[: 20 + told]


def test_a_failed_sync_of_the_interval_stops_the_journal(tmp_path):
    rig = Rig(tmp_path, flush="interval").open()
    rig.put("a")
    rig.fs.faults["sync"] = (0, EIO, False)
    rig.move(1.0)
    with pytest.raises(Overload, match="errno 5"):
        rig.append("b")


@pytest.mark.parametrize("allocate_bytes", [0, 2000])
@pytest.mark.parametrize("after", range(12))
def test_a_full_disk_takes_nothing_back_that_was_accepted(tmp_path, after, allocate_bytes):
    rig = Rig(tmp_path, allocate_bytes=allocate_bytes).open()
    full = "allocate" if allocate_bytes else "append"
    rig.put("first")
    rig.fs.faults[full] = (after, ENOSPC, False)

    def step(value: int) -> None:
        rig.append(f"a{value}")
        rig.timer.step()
        rig.append(f"b{value}")
        rig.turn()
        if not (tmp_path / "reserve").exists():
            # It stays full for whoever asks for the reserve.
            rig.fs.faults["allocate"] = (0, ENOSPC, True)

    count, refused = until_refused(step, "disk full")
    accepted = [f"{name}{number}" for number in range(count) for name in "ab"]
    assert not refused.outcome_unknown
    assert rig.outcomes == {"first": None} | dict.fromkeys(accepted)
    assert rig.journal.failed is None
    assert values(rig.read(0)) == ["first"]
    rig.fs.faults.clear()
    # Asked once a second; the first who asks is still refused.
    rig.move(2.0)
    with pytest.raises(Overload, match="disk full"):
        rig.append("refused")
    rig.turn()
    rig.put("goes on")
    assert rig.again().open().state == ["first", *accepted, "goes on"]


def test_a_full_disk_takes_what_frees(tmp_path):
    rig = Rig(tmp_path).open()
    rig.snapshots = False
    rig.put("first")
    rig.fs.faults["append"] = (0, ENOSPC, False)
    rig.put("second")
    rig.fs.faults["allocate"] = (0, ENOSPC, True)
    with pytest.raises(Overload, match="disk full"):
        rig.append("more")
    rig.turn()

    def free(_: int) -> None:
        rig.append("x" * 100, freeing=True)
        rig.turn()

    count, _ = until_refused(free, "disk full")
    # As much as the reserve was, nearly.
    assert 8192 // 2 < count * 100 < 8192
    assert rig.outcomes["x" * 100] is None


def test_a_disk_is_asked_at_most_once_a_second(tmp_path):
    rig = Rig(tmp_path).open()
    rig.put("first")
    rig.fs.faults = {"append": (0, ENOSPC, False), "allocate": (0, ENOSPC, True)}
    rig.put("second")
    rig.fs.calls.clear()
    for _ in range(100):
        with pytest.raises(Overload):
            rig.append("more")
        rig.move(0.05)
    assert 4 <= rig.fs.count("allocate") <= 6


def test_others_who_take_the_room_leave_the_outcome_unknown(tmp_path):
    rig = Rig(tmp_path).open()
    rig.put("first")
    rig.fs.faults["append"] = (0, ENOSPC, True)
    rig.put("second")
    error = rig.outcomes["second"]
    assert isinstance(error, Overload)
    assert error.outcome_unknown
    assert rig.again().open().state == ["first"]


def test_a_journal_opens_on_a_full_disk_and_refuses(tmp_path):
    rig = Rig(tmp_path).open()
    rig.put("first")
    (tmp_path / "reserve").unlink()
    after = rig.again()
    after.fs.faults["allocate"] = (0, ENOSPC, True)
    after.open()
    assert after.state == ["first"]
    with pytest.raises(Overload, match="disk full"):
        after.append("second")
    after.turn()
    after.fs.faults.clear()
    after.move(2.0)
    with pytest.raises(Overload, match="disk full"):
        after.append("second")
    after.turn()
    after.put("second")


@pytest.fixture
def small_disk(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small disk")
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "chappe-test", str(folder)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"mounting is not permitted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("allocate_bytes", [0, 64 * 1024])
def test_a_small_disk_fills_up_and_is_emptied(small_disk, allocate_bytes):
    options = {"segment_bytes": 64 * 1024, "batch_bytes_max": 32 * 1024}
    rig = Rig(small_disk / "log", allocate_bytes=allocate_bytes, **options).open()
    rig.snapshots = False
    count, _ = until_refused(lambda number: rig.put(f"{number} {'x' * 1000}"), "disk full")
    assert 700 < count < 1000
    assert all(outcome is None for outcome in rig.outcomes.values())
    assert len(rig.outcomes) == count
    # Somebody reads and makes room.
    assert isinstance(rig.read(0), Batch)
    rig.append("read", freeing=True)
    rig.turn()
    assert rig.outcomes["read"] is None
    rig.journal.trim(rig.journal.bases[2])
    rig.turn()
    rig.move(2.0)
    with pytest.raises(Overload, match="disk full"):
        rig.append("more")
    rig.turn()
    rig.put("goes on")
    after = rig.again(**options).open()
    assert after.journal.damages == []
    assert after.journal.end == rig.journal.end
    after.crash()
    for journal in (rig, after):
        journal.journal._writer.seal()


OTHER = """
import sys
from chappe.errors import StorageError
from chappe.log.fs import OsFs
try:
    OsFs().lock(sys.argv[1] + "/lock")
except StorageError as error:
    print(error)
"""


def test_two_processes_cannot_open_one_journal(tmp_path):
    rig = Rig(tmp_path).open()

    def other() -> str:
        command = [sys.executable, "-c", OTHER, str(tmp_path)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert f"{tmp_path}: another process has this journal open" in other()
    with pytest.raises(StorageError, match="another process"):
        Rig(Path(tmp_path)).open()
    rig.crash()
    assert other() == ""


def test_a_recovery_that_fails_lets_the_journal_go(tmp_path):
    rig = Rig(tmp_path).open()
    rig.put("a")
    after = rig.again()
    after.fs.faults["read"] = (0, EIO, False)
    with pytest.raises(OSError, match="Input/output"):
        after.open()
    assert Rig(tmp_path).open().state == ["a"]
