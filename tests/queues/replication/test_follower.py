"""Q10: a copy is byte for byte, follows the newest epoch only, and is cut back where logs part."""

from __future__ import annotations

import pytest

from chappe.queues.replication.feed import PIECE_BYTES
from chappe.queues.replication.parting import Extent, epoch_at, parting
from chappe.wire.replica import Appended, Batches, Following, Invite, Superseded
from tests.log.rig import Rig
from tests.queues.replication.pair import Pair


def test_a_lower_epoch_is_refused_and_told_of_the_newer(tmp_path):
    pair = Pair(tmp_path)
    pair.followers["b"] = pair.follower("b", term=5)
    pair.lead(epoch=4)
    pair.carry()
    assert pair.master.superseded == 5
    assert pair.followers["b"].master is None
    for op in (Following("a", 4, 0, 0), Batches("a", 4, 0, b"x"), Invite("a", 4)):
        pair.under_way.clear()
        pair.deliver("a", "b", op)
        assert list(pair.under_way) == [("b", "a", Superseded("a", 5))]
    assert pair.heard == []


def test_a_higher_epoch_is_noted_before_anything_is_done_for_it(tmp_path):
    pair = Pair(tmp_path)
    pair.lead(epoch=4)
    pair.carry()
    assert pair.heard == [(4, "a")]


def test_a_log_that_parted_is_cut_back_and_the_same_afterwards(tmp_path):
    pair = Pair(tmp_path)
    pair.lead(epoch=1)
    pair.carry()
    for value in range(60):
        pair.rig.append(value)
        pair.carry()
    other = pair.rigs["b"]
    # It was cut off, led an epoch of its own, and nobody acknowledged what it wrote.
    other.journal.begin_epoch(2)
    for value in range(100, 200):
        other.put(value)
    assert other.journal.end > pair.rig.journal.end
    pair.followers["b"] = pair.follower("b")
    pair.lead(epoch=3)
    pair.rig.append("after")
    pair.carry()
    assert pair.rig.outcomes["after"] is None
    assert other.files() == pair.rig.files()
    assert other.journal.epochs == pair.rig.journal.epochs
    assert other.again().open().state == [*range(60), "after"]


def test_an_epoch_without_a_single_batch_does_not_stand_in_the_way(tmp_path):
    pair = Pair(tmp_path)
    pair.lead(epoch=1)
    pair.carry()
    pair.rig.append(0)
    pair.carry()
    # The replica led epoch 2 and wrote nothing; the master had more of epoch 1 than it.
    pair.rigs["b"].journal.begin_epoch(2)
    pair.followers["b"].rest()
    pair.master._feeds["b"].stop()
    pair.rig.put(1)
    pair.followers["b"] = pair.follower("b")
    pair.lead(epoch=3)
    pair.carry()
    assert pair.rigs["b"].files() == pair.rig.files()


def test_a_batch_that_is_larger_than_an_op_arrives_in_parts(tmp_path):
    pair = Pair(tmp_path)
    for name in pair.names:
        pair.rigs[name] = Rig(tmp_path / "large" / name, batch_bytes_max=2_000_000).open()
    pair.followers["b"] = pair.follower("b")
    pair.lead()
    pair.carry()
    pair.rig.append("x" * (5 * PIECE_BYTES))
    pair.carry()
    parts = [op for op in pair.seen if isinstance(op, Batches)]
    assert len(parts) == 6
    assert [op.more for op in parts] == [True] * 5 + [False]
    assert pair.rigs["b"].files() == pair.rig.files()


def test_what_the_journal_has_no_room_for_waits_for_its_turn(tmp_path):
    pair = Pair(tmp_path)
    pair.lead(insync="a")
    pair.under_way.clear()
    pair.master._least = 1
    # More than the replica's journal takes at once.
    for value in range(1000):
        pair.rig.append(value)
        pair.rig.turn()
    assert pair.rig.journal.flushed > 4 * pair.rigs["b"].options.reserve_bytes
    pair.move(3)
    pair.carry(100_000)
    assert pair.rigs["b"].files() == pair.rig.files()
    assert not [op for op in pair.seen if isinstance(op, Appended) and op.stopped]


def test_what_is_under_way_to_the_disk_is_not_confirmed(tmp_path):
    pair = Pair(tmp_path)
    pair.lead()
    pair.carry()
    rig = pair.rigs["b"]
    ends = []
    for value in ("x", "y"):
        pair.rig.put(value)
        ends.append(pair.rig.journal.flushed)
        pair.deliver(*pair.under_way.popleft())
        # The first write is under way when the second comes.
        rig.timer.step()
    while not pair.under_way:
        assert rig.disk.step()
    assert [op for _, _, op in pair.under_way] == [Appended("a", 1, ends[0], ends[1])]
    pair.carry()
    assert rig.files() == pair.rig.files()


def test_what_does_not_fit_stops_the_copy_and_the_master_calls_again(tmp_path):
    pair = Pair(tmp_path)
    pair.lead()
    pair.carry()
    pair.rig.append("x")
    pair.carry()
    end = pair.rigs["b"].journal.end
    pair.deliver("a", "b", Batches("a", 1, end, b"no batch at all"))
    pair.carry()
    assert not pair.followers["b"].copying
    assert not pair.master._feeds["b"].active
    pair.move(3)
    pair.rig.append("y")
    pair.carry()
    assert pair.rig.outcomes["y"] is None


@pytest.mark.parametrize(
    ("master", "replica", "point"),
    [
        # The same, and one that is behind.
        (([(1, 0)], 0, 90), ([(1, 0)], 0, 90), 90),
        (([(1, 0)], 0, 90), ([(1, 0)], 0, 50), 50),
        (([(1, 0)], 0, 90), ([], 0, 0), 0),
        # The replica wrote more of an epoch than the next master had.
        (([(1, 0), (2, 50)], 0, 90), ([(1, 0)], 0, 70), 50),
        # It led an epoch that nobody else has.
        (([(1, 0), (3, 50)], 0, 90), ([(1, 0), (2, 40)], 0, 95), 40),
        (([(1, 0), (3, 50)], 0, 90), ([(1, 0), (2, 60)], 0, 95), 50),
        # What it needs is not kept any more.
        (([(1, 0), (2, 50)], 60, 90), ([(1, 0)], 0, 40), None),
        (([(1, 0)], 60, 90), ([], 0, 0), None),
        (([(1, 0)], 0, 90), ([(1, 0)], 30, 60), 60),
        # It was begun anew in the middle of an epoch.
        (([(1, 0), (2, 50)], 0, 90), ([(1, 30), (2, 50)], 30, 80), 80),
        (([(1, 0)], 0, 90), ([(1, 30)], 30, 80), 80),
        # The same number, and another beginning: not the same epoch.
        (([(1, 0), (2, 50)], 0, 90), ([(1, 0), (2, 60)], 0, 80), 50),
        # Nothing in common.
        (([(5, 0)], 0, 90), ([(4, 0)], 0, 80), None),
    ],
)
def test_where_two_logs_part(master, replica, point):
    assert parting(Extent(*master), Extent(*replica)) == point


def test_the_epoch_of_a_position():
    epochs = [(1, 0), (4, 50), (6, 90)]
    assert [epoch_at(epochs, lsn) for lsn in (0, 49, 50, 89, 90, 100)] == [1, 1, 4, 4, 6, 6]
    assert epoch_at([], 7) == 0
