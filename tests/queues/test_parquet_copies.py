"""What waits for its copy: in order, once it is committed, and kept until then."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from chappe.log.parquet.copies import Copies
from tests.log.rig import Rig


def filled(folder: Path, segments: int = 4) -> Rig:
    rig = Rig(folder).open()
    rig.snapshots = False
    while len(rig.journal.bases) < segments:
        rig.put("x" * 100)
    return rig


def test_sealed_segments_come_in_order_and_the_last_one_never(tmp_path: Path):
    rig = filled(tmp_path)
    bases = rig.journal.bases
    copies = Copies("node", rig.journal, 0)
    seen = []
    while (order := copies.next()) is not None:
        seen.append((order.base, order.end))
        assert Path(order.path).stat().st_size == order.end - order.base
        assert copies.waiting == 4 - len(seen)
        copies.copied(order)
    assert seen == list(pairwise(bases))
    assert (copies.waiting, copies.missed) == (0, 0)


def test_retention_waits_for_the_copy(tmp_path: Path):
    rig = filled(tmp_path)
    bases = rig.journal.bases
    copies = Copies("node", rig.journal, 0)
    rig.journal.trim(rig.journal.end)
    rig.turn()
    assert rig.journal.bases == bases
    order = copies.next()
    assert order is not None
    copies.copied(order)
    rig.turn()
    # It went by itself: nobody has to ask the journal again.
    assert rig.journal.bases == bases[1:]
    assert not Path(order.path).exists()


def test_others_may_keep_a_segment_that_is_copied(tmp_path: Path):
    rig = filled(tmp_path)
    bases = rig.journal.bases
    rig.journal.keep = lambda base: base >= bases[1]
    copies = Copies("node", rig.journal, 0)
    while (order := copies.next()) is not None:
        copies.copied(order)
    rig.journal.trim(rig.journal.end)
    rig.turn()
    assert rig.journal.bases == bases[1:]


def test_what_is_not_committed_is_not_copied(tmp_path: Path):
    class Nobody:
        def may_flush(self) -> bool:
            return True

        def flushed(self, lsn: int) -> None:
            """Confirms nothing."""

    rig = Rig(tmp_path).open()
    rig.snapshots = False
    rig.journal.acknowledger = Nobody()  # type: ignore[assignment]
    while len(rig.journal.bases) < 3:
        rig.put("x" * 100)
    copies = Copies("node", rig.journal, 0)
    assert (copies.next(), copies.waiting) == (None, 2)
    rig.journal.acknowledge(rig.journal.bases[1])
    order = copies.next()
    assert order is not None
    copies.copied(order)
    assert (copies.next(), copies.waiting) == (None, 1)


def test_when_too_much_waits_the_oldest_goes_and_is_missed(tmp_path: Path):
    rig = filled(tmp_path, segments=6)
    bases = rig.journal.bases
    copies = Copies("node", rig.journal, rig.journal.end - bases[2])
    order = copies.next()
    assert order is not None
    copies.copied(order)
    rig.journal.trim(rig.journal.end)
    rig.turn()
    assert rig.journal.bases == bases[2:]
    following = copies.next()
    assert following is not None
    assert (following.base, copies.missed) == (bases[2], 1)


def test_one_can_be_passed_over(tmp_path: Path):
    rig = filled(tmp_path)
    copies = Copies("node", rig.journal, 0)
    order = copies.next()
    assert order is not None
    copies.pass_over(order, "it ends every process")
    following = copies.next()
    assert following is not None
    assert (following.base, copies.missed) == (order.end, 1)
