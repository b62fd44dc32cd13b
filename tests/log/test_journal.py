"""Journals: group commit, flush policies, segments, reading."""

from __future__ import annotations

import pytest

from chappe.errors import ConfigError, Forbidden, Overload
from chappe.log.batch import Batch
from chappe.log.options import JournalOptions
from chappe.log.segment import Damage
from tests.log.rig import Rig, until_refused, values


def test_what_is_appended_in_one_turn_is_one_write_and_one_sync(tmp_path):
    """Q5, Q11: group commit."""
    rig = Rig(tmp_path).open()
    rig.fs.calls.clear()
    lsns = {rig.append(value) for value in range(100)}
    assert lsns == {0}
    assert rig.fs.calls == []
    assert rig.outcomes == {}
    rig.turn()
    assert rig.outcomes == dict.fromkeys(range(100))
    assert rig.fs.count("append") == rig.fs.count("sync") == 1
    assert rig.journal.flushed == rig.journal.committed == rig.journal.end > 0


def test_what_is_appended_during_a_flush_is_the_next_one(tmp_path):
    rig = Rig(tmp_path).open()
    first = rig.append("a")
    rig.timer.step()
    second = rig.append("b")
    also = rig.append("c")
    rig.timer.step()
    # One at a time.
    assert len(rig.disk.jobs) == 1
    assert first < second == also
    rig.disk.step()
    assert rig.outcomes == {"a": None}
    rig.turn()
    assert rig.outcomes == {"a": None, "b": None, "c": None}
    assert rig.journal.flushes == 2


def test_nobody_is_told_before_the_sync(tmp_path):
    """Q11: `always` acknowledges what is on the disk, nothing else."""
    rig = Rig(tmp_path).open()
    rig.append("a")
    rig.timer.step()
    assert rig.outcomes == {}
    assert rig.journal.flushed == 0
    rig.disk.step()
    assert rig.fs.calls[-1][0] == "sync"
    assert rig.outcomes == {"a": None}


def test_interval_tells_what_is_written_and_syncs_later(tmp_path):
    """Q11."""
    rig = Rig(tmp_path, flush="interval").open()
    rig.put("a")
    rig.fs.calls.clear()
    rig.put("b")
    assert rig.outcomes == {"a": None, "b": None}
    assert rig.fs.count("append") == 1
    assert rig.fs.count("sync") == 0
    rig.move(1.0)
    assert rig.fs.count("sync") == 1
    rig.move(5.0)
    assert rig.fs.count("sync") == 1
    rig.put("c")
    rig.move(1.0)
    assert rig.fs.count("sync") == 2


def test_never_does_not_sync(tmp_path):
    """Q11."""
    rig = Rig(tmp_path, flush="never").open()
    rig.put("a")
    rig.fs.calls.clear()
    rig.put("b")
    rig.move(100.0)
    assert rig.outcomes == {"a": None, "b": None}
    assert rig.fs.count("sync") == 0


def test_what_was_appended_is_there_after_a_kill(tmp_path):
    """Q11: queues come back as they were."""
    rig = Rig(tmp_path).open()
    for value in range(200):
        rig.put(value)
    assert len(rig.journal.bases) > 2
    after = rig.again().open()
    assert after.state == list(range(200))
    assert after.journal.end == rig.journal.end
    assert after.journal.bases == rig.journal.bases
    assert after.journal.damages == []
    after.put("more")
    assert after.again().open().state == [*range(200), "more"]


def test_room_allocated_ahead_is_no_part_of_the_log(tmp_path):
    rig = Rig(tmp_path, allocate_bytes=10_000).open()
    for value in range(200):
        rig.put(value)
    *sealed, last = rig.journal.bases
    assert (tmp_path / f"{last:016x}.log").stat().st_size >= 10_000
    for base, end in zip(sealed, rig.journal.bases[1:], strict=True):
        assert (tmp_path / f"{base:016x}.log").stat().st_size == end - base
    after = rig.again().open()
    assert after.state == list(range(200))
    assert after.journal.damages == []
    assert after.journal.end == rig.journal.end
    after.put("more")
    assert after.again().open().state[-1] == "more"


def test_each_segment_begins_with_the_state_before_it(tmp_path):
    rig = Rig(tmp_path).open()
    for value in range(100):
        rig.put(value)
    state: list[object] = []
    for base in rig.journal.bases:
        batches = list(rig.journal.scan(base))
        assert [batch.first for batch in batches] == [True] + [False] * (len(batches) - 1)
        rig.state = ["wrong"]
        assert rig.fold(batches[:1])[: len(state)] == state
        state = list(rig.fold(batches[1:]))
    assert state == list(range(100))


def test_recovery_reads_the_last_segment_only(tmp_path):
    rig = Rig(tmp_path).open()
    for value in range(300):
        rig.put(value)
    after = rig.again()
    batches = list(after.journal.recover())
    assert after.fold(batches) == list(range(300))
    assert batches[0].first
    assert batches[0].lsn == after.journal.bases[-1] > 0


def test_batches_are_read_by_position_from_memory_and_from_disk(tmp_path):
    rig = Rig(tmp_path, cache_bytes=500).open()
    lsns = {value: rig.put(value) for value in range(100)}
    rig.fs.calls.clear()
    assert values(rig.read(lsns[99])) == [99]
    assert rig.fs.count("read") == 0
    for value, lsn in lsns.items():
        assert values(rig.read(lsn)) == [value]
    assert rig.fs.count("read") > 80
    rig.fs.calls.clear()
    assert values(rig.read(lsns[99])) == [99]
    assert rig.fs.count("read") == 0


def test_a_batch_that_many_ask_for_is_read_once(tmp_path):
    rig = Rig(tmp_path, cache_bytes=0).open()
    lsn = rig.put("a")
    rig.put("b")
    got: list[object] = []
    for _ in range(10):
        rig.journal.read(lsn, got.append)
    assert got == []
    rig.turn()
    assert len(got) == 10
    assert rig.fs.count("read") == 1


def test_what_is_not_flushed_or_nowhere_cannot_be_read(tmp_path):
    rig = Rig(tmp_path).open()
    rig.put("a")
    lsn = rig.append("b")
    for nowhere in (lsn, 1_000_000):
        got: list[object] = []
        rig.journal.read(nowhere, got.append)
        assert isinstance(got[0], Damage)
    assert isinstance(rig.read(1), Damage)
    assert isinstance(rig.read(lsn), Batch)


def test_too_much_at_once_is_refused_and_changes_nothing(tmp_path):
    rig = Rig(tmp_path).open()
    with pytest.raises(Overload, match="at once"):
        rig.append("x" * 5000)
    rig.append("a")
    accepted, _ = until_refused(lambda _: rig.append("x" * 1000), "too much waits")
    assert 2 <= accepted <= 4
    rig.turn()
    assert rig.again().open().state == ["a", *["x" * 1000] * accepted]


def test_a_journal_takes_no_more_than_it_may_hold_but_what_frees(tmp_path):
    rig = Rig(tmp_path, disk_bytes_max=3000).open()
    rig.snapshots = False
    until_refused(rig.put, "3000 bytes")
    rig.append("ack", freeing=True)
    rig.turn()
    assert rig.outcomes["ack"] is None
    rig.journal.trim(rig.journal.end)
    rig.turn()
    rig.put("goes on")


def test_a_snapshot_that_is_too_large_lets_the_segment_go_on(tmp_path):
    rig = Rig(tmp_path, batch_bytes_max=2048).open()
    big = "x" * 700
    for _ in range(5):
        rig.put(big)
    assert len(rig.journal.bases) == 2
    assert rig.again().open().state == [big] * 5


def test_an_acknowledger_decides_what_is_committed(tmp_path):
    """Q10: the producer's ACK waits for the replicas."""

    class Replicas:
        told: list[int] = []
        lease = True

        def may_flush(self) -> bool:
            return self.lease

        def flushed(self, lsn: int) -> None:
            self.told.append(lsn)

    rig = Rig(tmp_path).open()
    replicas = rig.journal.acknowledger = Replicas()
    rig.put("a")
    a = rig.journal.end
    rig.put("b")
    assert replicas.told == [a, rig.journal.flushed]
    assert rig.outcomes == {}
    assert rig.journal.committed == 0
    rig.journal.acknowledge(a)
    assert rig.outcomes == {"a": None}
    assert rig.journal.committed == a
    replicas.lease = False
    rig.put("c")
    assert rig.journal.flushed < rig.journal.end + 1
    assert len(replicas.told) == 2
    replicas.lease = True
    rig.journal.flush_soon()
    rig.turn()
    assert len(replicas.told) == 3
    rig.journal.acknowledge(rig.journal.end)
    assert rig.outcomes == {"a": None, "b": None, "c": None}


def test_a_fence_fails_what_waits_and_refuses_what_comes(tmp_path):
    """Q10: the old master is fenced by epoch."""
    rig = Rig(tmp_path).open()
    rig.put("a")
    committed = rig.journal.committed
    rig.append("b")
    rig.timer.step()
    rig.append("c")
    rig.journal.fence("a higher epoch")
    for value in ("b", "c"):
        error = rig.outcomes[value]
        assert isinstance(error, Overload)
        assert error.outcome_unknown
    with pytest.raises(Overload, match="a higher epoch") as refused:
        rig.append("d")
    assert not refused.value.outcome_unknown
    rig.turn()
    # What was under way is on the disk; nobody was told that it is committed.
    assert rig.journal.committed == committed
    assert rig.journal.flushed == rig.journal.end
    assert rig.again().open().state == ["a", "b"]


def test_a_higher_epoch_ends_a_fence_and_the_log_goes_on(tmp_path):
    rig = Rig(tmp_path).open()
    rig.journal.begin_epoch(1)
    while len(rig.journal.bases) < 2:
        rig.put("x" * 100)
    # A segment is begun and dropped by the fence.
    while rig.journal.end - rig.journal.bases[-1] < rig.journal._roll_bytes:
        rig.put("y" * 100)
    state = list(rig.state)
    rig.append("dropped")
    rig.journal.fence("fenced")
    rig.turn()
    rig.state = list(state)
    rig.journal.begin_epoch(2)
    at = rig.put("z")
    assert rig.journal.bases[-1] == at
    after = rig.again().open()
    assert after.state == [*state, "z"]
    assert after.journal.epoch == 2
    assert after.journal.epochs == [(1, 0), (2, at)]


def test_a_segment_that_was_begun_before_a_fence_goes_on_after_it(tmp_path):
    rig = Rig(tmp_path).open()
    rig.append("a")
    rig.timer.step()
    rig.journal.fence("fenced")
    rig.turn()
    rig.journal.begin_epoch(1)
    rig.put("b")
    assert rig.journal.bases == [0]
    assert rig.again().open().state == ["a", "b"]


def test_epochs_are_kept_and_never_go_back(tmp_path):
    """Q10."""
    rig = Rig(tmp_path).open()
    rig.journal.begin_epoch(3)
    rig.put("a")
    at = rig.journal.end
    rig.journal.begin_epoch(5)
    rig.journal.begin_epoch(5)
    lsn = rig.put("b")
    assert lsn == at
    with pytest.raises(Forbidden, match="epoch 4 is over"):
        rig.journal.begin_epoch(4)
    after = rig.again().open()
    assert after.journal.epochs == [(3, 0), (5, at)]
    assert after.read(at).epoch == 5


def test_sealed_segments_have_an_index_and_are_told_of(tmp_path):
    rig = Rig(tmp_path).open()
    told: list[tuple[str, int]] = []
    rig.journal.index = lambda base: f"index of {base}, {len(rig.state)} values".encode()
    rig.journal.sealed = lambda path, base: told.append((path, base))
    for value in range(100):
        rig.put(value)
    *sealed, last = rig.journal.bases
    assert [base for _, base in told] == sealed
    for path, base in told:
        assert path == str(tmp_path / f"{base:016x}.log")
    before = 0
    for base in sealed:
        before += sum(len(values(batch)) for batch in rig.journal.scan(base))
        assert rig.journal.read_index(base) == f"index of {base}, {before} values".encode()
    assert rig.journal.read_index(last) is None
    after = rig.again().open()
    assert after.journal.read_index(sealed[0]) == rig.journal.read_index(sealed[0])


@pytest.mark.parametrize(
    "options",
    [
        {"flush_interval_s": 0.0},
        {"flush_interval_s": float("nan")},
        {"retention_s": -1.0},
        {"segment_bytes": 1},
        {"batch_bytes_max": 64 * 1024 * 1024},
        {"disk_bytes_max": 1024 * 1024},
        {"cache_bytes": -1},
    ],
)
def test_options_without_sense_are_refused_by_name(options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        JournalOptions(**options)


def test_large_snapshots_stay_the_smaller_part_of_a_log(tmp_path):
    rig = Rig(tmp_path).open()
    written = 0
    # All that was ever put is in each snapshot: soon one is larger than a segment should be.
    for _ in range(600):
        rig.put("x" * 50)
        written += 100
    assert len(rig.journal.bases) < 30
    assert rig.journal.end < 3 * written
