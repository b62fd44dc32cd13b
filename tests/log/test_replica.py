"""Q10: replicas have the same bytes; what was never acknowledged can be cut."""

from __future__ import annotations

import shutil

import pytest

from chappe.errors import BadRequest, Forbidden, Overload, StorageError
from chappe.log.batch import encode_batch
from tests.log.rig import Rig, values


def filled(folder, count: int = 100, **options) -> Rig:
    rig = Rig(folder, **options).open()
    rig.journal.begin_epoch(1)
    for value in range(count):
        rig.put(value)
    return rig


def follow(master: Rig, replica: Rig, bytes_max: int = 300) -> None:
    while replica.journal.end < master.journal.flushed:
        data = master.raw(replica.journal.end, bytes_max)
        outcomes: list[object] = []
        replica.fold(replica.journal.append_raw(data, outcomes.append))
        assert outcomes == []
        replica.turn()
        assert outcomes == [None]


@pytest.mark.parametrize("cache_bytes", [0, 100_000])
@pytest.mark.parametrize("bytes_max", [1, 300, 100_000])
def test_a_replica_is_byte_identical(tmp_path, cache_bytes, bytes_max):
    master = filled(tmp_path / "master", cache_bytes=cache_bytes)
    replica = Rig(tmp_path / "replica").open()
    follow(master, replica, bytes_max)
    assert replica.files() == master.files()
    assert len(master.files()) > 2
    assert replica.state == master.state
    assert replica.journal.epochs == master.journal.epochs
    after = replica.again().open()
    assert after.state == master.state
    # It can be promoted and goes on where the master was.
    after.journal.begin_epoch(2)
    after.put("mine")
    assert after.again().open().state == [*range(100), "mine"]


def test_a_replica_s_segments_get_indexes_of_what_was_folded_before(tmp_path):
    master = filled(tmp_path / "master")
    replica = Rig(tmp_path / "replica").open()
    for rig in (master, replica):
        rig.journal.index = lambda base, rig=rig: str(len(rig.state)).encode()  # type: ignore[misc]
    for value in range(100, 200):
        master.put(value)
    follow(master, replica)
    for base in master.journal.bases[-4:-1]:
        assert replica.journal.read_index(base) == master.journal.read_index(base) is not None


def test_raw_batches_of_two_segments_come_apart(tmp_path):
    master = filled(tmp_path / "master", cache_bytes=100_000)
    at = master.journal.start
    seen = []
    while at < master.journal.end:
        data = master.raw(at, 10**6)
        seen.append(at)
        at += len(data)
    assert seen == master.journal.bases


def test_raw_batches_that_do_not_fit_change_nothing(tmp_path):
    master = filled(tmp_path / "master", 5)
    replica = Rig(tmp_path / "replica").open()
    data = master.raw(0)
    first = master.read(0).data
    old = encode_batch([b"\x01"], lsn=len(first), epoch=0, ts_ms=1, count=1)
    begins = encode_batch([b"\x01"], lsn=len(first), epoch=1, ts_ms=1, count=1, first=True)
    no_segment = encode_batch([b"\x01"], lsn=0, epoch=1, ts_ms=1, count=1)
    for wrong, what in (
        (data[:-1], "cut"),
        (data[:-1] + b"\0", "damaged"),
        (data[len(first) :], "position"),
        (first + first, "position"),
        (first + begins, "another segment"),
        (no_segment, "no segment begins"),
        (b"", "none"),
    ):
        with pytest.raises(BadRequest, match=what):
            replica.journal.append_raw(wrong, None)
    with pytest.raises(Forbidden, match="epoch 0 is over"):
        replica.journal.append_raw(first + old, None)
    assert replica.journal.end == 0
    follow(master, replica)
    assert replica.files() == master.files()


def test_a_lower_epoch_is_refused(tmp_path):
    master = filled(tmp_path / "master", 5)
    replica = Rig(tmp_path / "replica").open()
    follow(master, replica)
    replica.journal.begin_epoch(2)
    master.put("late")
    with pytest.raises(Forbidden, match="epoch 1 is over"):
        replica.journal.append_raw(master.raw(replica.journal.end), None)


def test_truncate_cuts_to_any_batch_across_segments(tmp_path):
    """The old master takes back what the new one does not have, and follows."""
    source = filled(tmp_path / "source", 60)
    lsns = [batch.lsn for base in source.journal.bases for batch in source.journal.scan(base)]
    assert len(lsns) == 60
    assert len(source.journal.bases) > 2
    source.crash()
    for number, lsn in enumerate(lsns[1:], 1):
        folder = tmp_path / str(number)
        shutil.copytree(source.folder, folder)
        rig = Rig(folder).open()
        assert rig.journal.truncate(lsn) == lsn
        assert rig.journal.end == rig.journal.flushed == lsn
        rig.state = list(range(number))
        rig.put("new")
        again = rig.again().open()
        assert again.state == [*range(number), "new"], number
        assert again.journal.damages == []
        again.crash()


def test_truncate_cuts_to_the_batch_before_a_position_within_one(tmp_path):
    rig = filled(tmp_path)
    last = max(b.lsn for base in rig.journal.bases for b in rig.journal.scan(base))
    assert rig.journal.truncate(last + 1) == last
    base = rig.journal.bases[-1]
    before = rig.journal.bases[-2]
    assert rig.journal.truncate(base + 1) == base
    assert rig.journal.bases[-1] == before
    assert rig.journal.truncate(10**9) == base
    assert rig.journal.truncate(0) == 0
    assert rig.files() == {}
    rig.state = []
    rig.put("anew")
    assert rig.again().open().state == ["anew"]


def test_truncate_forgets_epochs_and_indexes_that_are_cut(tmp_path):
    rig = Rig(tmp_path).open()
    rig.journal.index = lambda base: b"index"
    for value in range(60):
        if value % 20 == 0:
            rig.journal.begin_epoch(value + 1)
        rig.put(value)
    (_, _), (_, second), (_, third) = rig.journal.epochs
    rig.journal.truncate(third)
    assert rig.journal.epochs == [(1, 0), (21, second)]
    assert rig.journal.read_index(rig.journal.bases[-1]) is None
    after = rig.again().open()
    assert after.journal.epochs == [(1, 0), (21, second)]
    assert after.state == list(range(40))


def test_a_deposed_master_follows_again(tmp_path):
    old = filled(tmp_path / "old", 50)
    new = Rig(tmp_path / "new").open()
    follow(old, new)
    new.journal.begin_epoch(2)
    fork = new.journal.end
    old.put("never acknowledged")
    for value in ("a", "b"):
        new.put(value)
    old.journal.fence("a higher epoch")
    old.turn()
    old.journal.truncate(fork)
    follow(new, old)
    assert old.files() == new.files()
    assert old.journal.epochs == new.journal.epochs == [(1, 0), (2, fork)]
    assert old.journal.failed is not None


def test_a_replica_can_begin_at_any_segment_of_its_master(tmp_path):
    master = filled(tmp_path / "master")
    master.journal.trim(master.journal.bases[2])
    master.turn()
    replica = filled(tmp_path / "replica", 3)
    start = master.journal.start
    assert start > replica.journal.end
    replica.journal.reset(start, 1)
    assert (replica.journal.start, replica.journal.end, replica.journal.epoch) == (start, start, 1)
    assert replica.files() == {}
    # Also when it restarts before it got anything.
    replica = replica.again().open()
    assert replica.journal.end == start
    replica.state = []
    follow(master, replica)
    assert replica.files() == master.files()
    assert replica.state == master.state


def test_cutting_needs_a_quiet_journal(tmp_path):
    rig = filled(tmp_path, 3)
    rig.append("under way")
    with pytest.raises(StorageError, match="under way"):
        rig.journal.truncate(0)
    rig.timer.step()
    with pytest.raises(StorageError, match="under way"):
        rig.journal.reset(0, 2)
    rig.turn()
    rig.journal.truncate(0)
    master = filled(tmp_path / "other")
    master.journal.trim(master.journal.end)
    master.turn()
    with pytest.raises(StorageError, match="nothing is kept before"):
        master.journal.truncate(1)


def test_an_epoch_without_a_batch_is_forgotten_where_it_began(tmp_path):
    rig = filled(tmp_path, 3)
    rig.journal.begin_epoch(7)
    rig.turn()
    assert rig.journal.truncate(rig.journal.end) == rig.journal.end
    assert rig.journal.epochs == [(1, 0)]
    assert rig.again().open().journal.epochs == [(1, 0)]


def test_one_can_wait_until_a_journal_can_be_cut(tmp_path):
    rig = filled(tmp_path, 3)
    ends: list[int] = []
    rig.journal.when_idle(lambda: ends.append(rig.journal.truncate(rig.journal.end)))
    assert len(ends) == 1
    rig.put("more")
    rig.journal.begin_epoch(2)
    rig.journal.when_idle(lambda: ends.append(rig.journal.truncate(0)))
    assert len(ends) == 1
    rig.turn()
    assert ends[1:] == [0]


def test_a_replica_takes_one_run_however_large_and_no_more_at_once(tmp_path):
    master = Rig(tmp_path / "master", batch_bytes_max=100_000, segment_bytes=1_000_000).open()
    master.put("x" * 50_000)
    second = master.put("y" * 50_000)
    replica = Rig(tmp_path / "replica", batch_bytes_max=2048).open()
    replica.journal.append_raw(master.raw(0, 1), None)
    with pytest.raises(Overload, match="too much waits"):
        replica.journal.append_raw(master.raw(second, 1), None)
    replica.turn()
    follow(master, replica)
    assert replica.files() == master.files()


def test_what_a_fence_drops_of_a_replica_can_come_again(tmp_path):
    master = filled(tmp_path / "master", 30)
    replica = Rig(tmp_path / "replica").open()
    replica.journal.append_raw(master.raw(0, 300), None)
    replica.journal.fence("for a moment")
    replica.turn()
    assert replica.journal.end == 0
    follow(master, replica)
    assert replica.files() == master.files()
    assert values(replica.read(0)) == [0]


def test_a_replica_that_was_cut_to_nothing_begins_again_at_the_same_place(tmp_path):
    master = filled(tmp_path / "master", 10)
    replica = Rig(tmp_path / "replica").open()
    follow(master, replica)
    assert replica.journal.truncate(0) == 0
    replica.state.clear()
    follow(master, replica)
    assert replica.files() == master.files()
    replica.journal.reset(0, 1)
    replica.state.clear()
    follow(master, replica)
    assert replica.files() == master.files()
