"""Retention: by age, by size, and never what somebody still needs."""

from __future__ import annotations

from tests.log.rig import Rig


def filled(folder, segments: int = 6, **options) -> Rig:
    rig = Rig(folder, **options).open()
    rig.snapshots = False
    while len(rig.journal.bases) < segments:
        rig.put("x" * 100)
        rig.move(1.0)
    return rig


def on_disk(rig: Rig) -> list[int]:
    return [int(name.removesuffix(".log"), 16) for name in rig.files()]


def test_what_all_have_passed_goes_by_whole_segments(tmp_path):
    rig = filled(tmp_path)
    bases = rig.journal.bases
    rig.journal.trim(bases[3] - 1)
    rig.turn()
    assert rig.journal.bases == on_disk(rig) == bases[2:]
    assert rig.journal.start == bases[2]
    rig.journal.trim(rig.journal.end)
    rig.turn()
    # The last one is never sealed.
    assert rig.journal.bases == on_disk(rig) == bases[5:]
    after = rig.again().open()
    assert after.journal.start == bases[5]
    assert after.journal.damages == []


def test_indexes_go_with_their_segments(tmp_path):
    rig = Rig(tmp_path).open()
    rig.journal.index = lambda base: b"index"
    for value in range(100):
        rig.put(value)
    assert list(tmp_path.glob("*.index"))
    rig.journal.trim(rig.journal.end)
    rig.turn()
    assert not list(tmp_path.glob("*.index"))


def test_age_keeps_what_is_young(tmp_path):
    rig = filled(tmp_path, retention_s=60.0)
    bases = rig.journal.bases
    rig.journal.trim(rig.journal.end)
    rig.turn()
    assert rig.journal.bases == bases
    times = {segment.base: segment.ts_ms for segment in rig.journal._segments.all}
    rig.wall_ms = times[bases[1]] + 60_000
    rig.journal.trim(0)
    rig.turn()
    assert rig.journal.bases == on_disk(rig) == bases[2:]


def test_age_is_known_after_a_restart(tmp_path):
    rig = filled(tmp_path)
    bases = rig.journal.bases
    after = rig.again(retention_s=60.0).open()
    after.wall_ms = rig.journal._segments.all[2].ts_ms + 60_000 - 1
    after.journal.trim(after.journal.end)
    after.turn()
    assert after.journal.bases in (bases[1:], bases[2:])


def test_size_bounds_what_age_keeps(tmp_path):
    rig = filled(tmp_path, retention_s=1e6, retention_bytes=3000)
    bases = rig.journal.bases
    rig.journal.trim(rig.journal.end)
    rig.turn()
    kept = bases[-1] - rig.journal.start
    assert 0 < kept <= 3000
    assert len(rig.journal.bases) > 2
    # What is not passed does not count, however much it is.
    other = filled(tmp_path / "other", retention_s=1e6, retention_bytes=3000)
    bases = other.journal.bases
    other.journal.trim(bases[2])
    other.turn()
    assert other.journal.bases == bases


def test_a_segment_stays_until_it_is_let_go(tmp_path):
    rig = filled(tmp_path)
    bases = rig.journal.bases
    held = {bases[1]}
    rig.journal.keep = held.__contains__
    rig.journal.trim(rig.journal.end)
    rig.turn()
    # None goes before one that is older.
    assert rig.journal.bases == on_disk(rig) == bases[1:]
    held.clear()
    rig.journal.trim(0)
    rig.turn()
    assert rig.journal.bases == bases[-1:]


def test_a_snapshot_is_on_the_disk_before_what_it_stands_for_goes(tmp_path):
    rig = filled(tmp_path, flush="never")
    last = f"{rig.journal.bases[-1]:016x}.log"
    rig.fs.calls.clear()
    rig.journal.trim(rig.journal.end)
    rig.turn()
    assert rig.fs.calls[0] == ("sync", last)
    assert rig.fs.count("remove") == 5


def test_segments_are_removed_oldest_first_and_a_failure_leaves_no_gap(tmp_path):
    rig = filled(tmp_path)
    bases = rig.journal.bases
    rig.fs.faults["remove"] = (2, 13, False)
    rig.journal.trim(rig.journal.end)
    rig.turn()
    assert on_disk(rig) == bases[2:]
    assert rig.journal.failed is None
    after = rig.again().open()
    assert after.journal.bases == bases[2:]
    assert after.journal.damages == []
