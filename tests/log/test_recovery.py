"""Q11: whole batches are kept, a torn tail is cut, damage is reported and never served."""

from __future__ import annotations

from pathlib import Path

import pytest

from chappe.log.batch import HEADER_BYTES, Batch, read_batch
from chappe.log.segment import Damage
from tests.log.rig import Rig, values

# Bytes of a batch, by what is there.
REGIONS = {
    "magic": 0,
    "version": 4,
    "flags": 5,
    "zero": 6,
    "epoch": 15,
    "lsn": 23,
    "ts": 31,
    "length, small": 35,
    "length, huge": 32,
    "crc": 36,
    "array": 40,
    "count": 44,
    "body": HEADER_BYTES,
    "last byte": -1,
}


def written(folder: Path, count: int = 60, **options: object) -> tuple[Rig, list[int]]:
    """A journal of several segments, killed."""
    rig = Rig(folder, **options).open()
    lsns = [rig.put(value) for value in range(count)]
    rig.crash()
    return rig, lsns


def reopened(rig: Rig) -> Rig:
    return rig.again().open()


def segment_of(rig: Rig, lsn: int) -> tuple[Path, int]:
    base = max(base for base in rig.journal.bases if base <= lsn)
    return rig.folder / f"{base:016x}.log", lsn - base


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x10
    path.write_bytes(data)


@pytest.mark.parametrize("allocated", [0, 100])
def test_a_log_cut_at_every_byte_of_its_last_two_batches(tmp_path, allocated):
    rig, lsns = written(tmp_path)
    path, before_last = segment_of(rig, lsns[-2])
    assert (path, lsns[-1]) == (segment_of(rig, lsns[-1])[0], lsns[-1])
    whole = path.read_bytes()
    _, last = segment_of(rig, lsns[-1])
    for size in range(before_last, len(whole) + 1):
        path.write_bytes(whole[:size] + bytes(allocated))
        kept = sum(1 for end in (last, len(whole)) if size >= end)
        after = reopened(rig)
        assert after.state == list(range(58 + kept)), size
        boundary = (before_last, last, len(whole))[kept]
        # Zeros at the end of what was cut are still the batch's own: nothing is missing then.
        torn = size > boundary and any(whole[boundary:size])
        assert [(d.offset, d.tail) for d in after.journal.damages] == [(boundary, True)] * torn
        # It goes on there, and that is there afterwards.
        after.put("more")
        later = reopened(after)
        assert later.state == [*range(58 + kept), "more"]
        assert later.journal.damages == []
        later.crash()


@pytest.mark.parametrize("region", REGIONS)
def test_a_flipped_bit_in_the_middle_costs_one_batch(tmp_path, region):
    rig, lsns = written(tmp_path)
    lsn = lsns[-3]
    path, offset = segment_of(rig, lsn)
    size = lsns[-2] - lsn
    flip(path, offset + REGIONS[region] % size)
    after = reopened(rig)
    assert after.state == [value for value in range(60) if value != 57]
    [damage] = after.journal.damages
    assert (damage.segment, damage.offset, damage.end) == (str(path), offset, offset + size)
    assert not damage.tail
    assert isinstance(after.read(lsn), Damage)
    assert values(after.read(lsns[-2])) == [58]
    after.put("more")
    assert reopened(after).state[-3:] == [58, 59, "more"]


@pytest.mark.parametrize("region", REGIONS)
def test_a_flipped_bit_in_the_last_batch_costs_that(tmp_path, region):
    rig, lsns = written(tmp_path)
    path, offset = segment_of(rig, lsns[-1])
    flip(path, offset + REGIONS[region] % (rig.journal.end - lsns[-1]))
    after = reopened(rig)
    assert after.state == list(range(59))
    [damage] = after.journal.damages
    assert (damage.segment, damage.offset, damage.tail) == (str(path), offset, True)
    assert isinstance(after.read(lsns[-1]), Damage)


@pytest.mark.parametrize("region", REGIONS)
def test_a_flipped_bit_in_a_snapshot_folds_from_the_one_before(tmp_path, region):
    rig, _ = written(tmp_path)
    base = rig.journal.bases[-1]
    path = tmp_path / f"{base:016x}.log"
    first = read_batch(path.read_bytes())
    assert isinstance(first, Batch)
    lost = values(first)
    flip(path, REGIONS[region] % len(first.data))
    after = reopened(rig)
    assert after.state == [value for value in range(60) if value not in lost]
    [damage] = after.journal.damages
    assert (damage.segment, damage.offset, damage.end) == (str(path), 0, len(first.data))


def test_damage_in_an_old_segment_is_seen_when_it_is_read(tmp_path):
    rig, lsns = written(tmp_path)
    path, offset = segment_of(rig, lsns[2])
    flip(path, offset + HEADER_BYTES)
    after = reopened(rig)
    assert after.state == list(range(60))
    assert after.journal.damages == []
    damage = after.read(lsns[2])
    assert isinstance(damage, Damage)
    assert (damage.segment, damage.offset) == (str(path), offset)
    assert isinstance(after.raw(lsns[2]), Damage)
    assert values(after.read(lsns[3])) == [3]
    assert [v for batch in after.journal.scan(0) for v in values(batch)][:4] == [0, 1, 3, 4]
    assert len(after.journal.damages) == 1


def test_an_index_with_a_flipped_bit_is_none(tmp_path):
    rig = Rig(tmp_path).open()
    rig.journal.index = lambda base: b"some index"
    for value in range(60):
        rig.put(value)
    base = rig.journal.bases[0]
    path = tmp_path / f"{base:016x}.index"
    for offset in range(path.stat().st_size):
        whole = path.read_bytes()
        flip(path, offset)
        assert rig.journal.read_index(base) is None
        path.write_bytes(whole)
    assert rig.journal.read_index(base) == b"some index"
    path.unlink()
    assert rig.journal.read_index(base) is None
    rig.journal.write_index(base, b"again")
    assert reopened(rig).journal.read_index(base) == b"again"


def test_a_segment_that_was_begun_and_has_nothing_is_dropped(tmp_path):
    rig, _ = written(tmp_path)
    end = rig.journal.end
    for garbage in (b"", bytes(500), b"torn" + bytes(100)):
        path = tmp_path / f"{end:016x}.log"
        path.write_bytes(garbage)
        after = reopened(rig)
        assert after.state == list(range(60))
        assert after.journal.end == end
        assert len(after.journal.damages) == any(garbage)
        assert not path.exists()
        after.crash()


def test_an_index_of_what_is_no_longer_sealed_is_forgotten(tmp_path):
    rig = Rig(tmp_path).open()
    rig.journal.index = lambda base: b"some index"
    rig.snapshots = False
    while len(rig.journal.bases) < 4:
        rig.put("x" * 100)
    rig.crash()
    (tmp_path / f"{rig.journal.bases[-1]:016x}.log").write_bytes(b"")
    after = reopened(rig)
    indexed = [base for base in after.journal.bases if after.journal.read_index(base)]
    assert indexed == after.journal.bases[:-1] == rig.journal.bases[:2]


def test_a_missing_or_short_segment_is_reported_and_the_rest_kept(tmp_path):
    rig, _ = written(tmp_path, 100)
    first, second, *_ = rig.journal.bases
    path = tmp_path / f"{first:016x}.log"
    path.write_bytes(path.read_bytes()[:-10])
    after = reopened(rig)
    assert after.state == list(range(100))
    [damage] = after.journal.damages
    assert (damage.segment, damage.offset, damage.end) == (str(path), second - first - 10, second)
    path.unlink()
    after = reopened(after)
    assert after.state == list(range(100))
    assert after.journal.start == second


def test_all_snapshots_damaged_still_gives_all_that_is_whole(tmp_path):
    rig, _ = written(tmp_path)
    lost = set()
    for base in rig.journal.bases:
        path = tmp_path / f"{base:016x}.log"
        first = read_batch(path.read_bytes())
        assert isinstance(first, Batch)
        lost.update(values(first))
        flip(path, HEADER_BYTES)
    after = reopened(rig)
    assert after.state == [value for value in range(60) if value not in lost]
    assert len(after.journal.damages) == len(rig.journal.bases)


def test_a_batch_inside_a_message_is_not_taken_for_one(tmp_path):
    """Where a batch is damaged, the next is looked for; a forged one has another position."""
    rig = Rig(tmp_path).open()
    rig.put("a")
    forged = rig.read(0).data
    lsn = rig.put(forged)
    rig.put("b")
    rig.crash()
    path, offset = segment_of(rig, lsn)
    # The length is wrong, so that the next batch has to be looked for.
    flip(path, offset + 35)
    after = reopened(rig)
    assert after.state == ["a", "b"]
    [damage] = after.journal.damages
    assert (damage.offset, damage.tail) == (offset, False)


def test_a_batch_at_another_position_is_not_served(tmp_path):
    rig, _ = written(tmp_path)
    first, second, *_ = rig.journal.bases
    content = (tmp_path / f"{first:016x}.log").read_bytes()
    (tmp_path / f"{second:016x}.log").write_bytes(content)
    after = reopened(rig)
    damage = after.read(second)
    assert isinstance(damage, Damage)
    assert "position 0" in damage.reason


def test_what_was_written_aside_and_left_is_removed(tmp_path):
    rig, _ = written(tmp_path)
    (tmp_path / "epochs.tmp").write_bytes(b"half")
    reopened(rig)
    assert not (tmp_path / "epochs.tmp").exists()


def test_damaged_epochs_are_found_again_in_the_batches(tmp_path):
    rig = Rig(tmp_path).open()
    for value in range(60):
        if value % 20 == 0:
            rig.journal.begin_epoch(value + 1)
        rig.put(value)
    epochs = rig.journal.epochs
    assert len(epochs) == 3
    flip(tmp_path / "epochs", 12)
    after = reopened(rig)
    assert after.journal.epochs == epochs
    assert [Path(damage.segment).name for damage in after.journal.damages] == ["epochs"]
    assert reopened(after).journal.damages == []


def test_what_a_killed_process_left_in_memory_is_synced_at_the_start(tmp_path):
    rig, _ = written(tmp_path, flush="never")
    after = reopened(rig)
    last = f"{after.journal.bases[-1]:016x}.log"
    assert ("sync", last) in after.fs.calls
