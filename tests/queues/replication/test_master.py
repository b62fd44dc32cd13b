"""Q10: what a master commits, whom it counts, and when it stops."""

from __future__ import annotations

import pytest

from chappe.errors import Overload
from chappe.wire.replica import Appended, Batches, Superseded
from tests.queues.replication.pair import Pair


def test_what_every_member_has_flushed_is_committed_and_no_sooner(tmp_path):
    pair = Pair(tmp_path, "bc")
    pair.lead(insync="abc")
    pair.carry()
    assert pair.master.ready
    pair.rig.append("x")
    pair.rig.turn()
    assert pair.rig.outcomes == {}
    # Both have received it, and only one has it on its disk.
    while pair.under_way:
        pair.deliver(*pair.under_way.popleft())
    pair.rigs["b"].turn()
    while pair.under_way:
        pair.deliver(*pair.under_way.popleft())
    assert pair.rig.outcomes == {}
    pair.carry()
    assert pair.rig.outcomes == {"x": None}
    assert pair.rigs["b"].files() == pair.rigs["c"].files() == pair.rig.files()


def test_a_replica_confirms_only_what_is_on_its_disk(tmp_path):
    pair = Pair(tmp_path)
    pair.lead()
    pair.carry()
    pair.rig.append("x")
    pair.rig.turn()
    pair.seen.clear()
    while pair.under_way:
        pair.deliver(*pair.under_way.popleft())
    assert [type(op) for op in pair.seen] == [Batches]
    pair.rigs["b"].turn()
    (_, _, confirmed) = pair.under_way[0]
    assert isinstance(confirmed, Appended)
    assert confirmed.lsn == pair.rig.journal.flushed


def test_nothing_is_flushed_without_the_lease(tmp_path):
    pair = Pair(tmp_path)
    pair.lead()
    pair.carry()
    pair.until = pair.rig.timer.now
    pair.rig.append("too late")
    pair.carry()
    assert pair.rig.outcomes == {}
    assert pair.rig.files() == {}


def test_a_newer_epoch_fences_and_what_waits_is_unknown(tmp_path):
    pair = Pair(tmp_path)
    pair.lead(epoch=3)
    pair.carry()
    pair.rig.append("waits")
    pair.rig.turn()
    pair.deliver("b", "a", Superseded("a", 4))
    error = pair.rig.outcomes["waits"]
    assert isinstance(error, Overload)
    assert error.outcome_unknown
    assert pair.master.superseded == 4
    with pytest.raises(Overload, match="epoch 4 is newer than 3"):
        pair.rig.append("refused")
    # What comes now commits nothing.
    pair.carry()
    assert not pair.master.may_flush()


@pytest.mark.parametrize("epoch", [2, 3])
def test_an_epoch_that_is_not_newer_fences_nobody(tmp_path, epoch: int):
    pair = Pair(tmp_path)
    pair.lead(epoch=3)
    pair.carry()
    pair.deliver("b", "a", Superseded("a", epoch))
    assert pair.master.superseded is None
    pair.rig.append("x")
    pair.carry()
    assert pair.rig.outcomes == {"x": None}


def test_a_confirmation_of_another_epoch_counts_for_nothing(tmp_path):
    pair = Pair(tmp_path)
    pair.lead(epoch=3)
    pair.carry()
    pair.rig.append("x")
    pair.rig.turn()
    pair.under_way.clear()
    pair.deliver("b", "a", Appended("a", 2, 10_000, 10_000))
    assert pair.rig.outcomes == {}
    # Nor does one of more than was sent.
    pair.deliver("b", "a", Appended("a", 3, 10_000, 10_000))
    assert pair.rig.journal.committed <= pair.rig.journal.flushed


def test_a_replica_joins_when_it_has_all_that_is_committed_and_counts_at_once(tmp_path):
    pair = Pair(tmp_path, "bc")
    pair.lead(insync="ab")
    pair.under_way = type(pair.under_way)(item for item in pair.under_way if "c" not in item[:2])
    pair.carry()
    for number in range(30):
        pair.rig.append(number)
        pair.carry()
    assert len(pair.rig.outcomes) == 30
    assert pair.master.proposed is None
    # It copies, and is far behind: that is no reason to ask for anything.
    feed = pair.master._feeds["c"]
    feed.begin(0, pair.rig.timer.now)
    pair.master.tick()
    assert pair.master.proposed is None
    feed.stop()
    pair.move(3)
    pair.carry()
    assert pair.master.proposed is not None
    assert set(pair.master.proposed.insync) == {"a", "b", "c"}
    # Not agreed on yet, and it counts already.
    pair.rig.append("x")
    pair.rig.turn()
    for sender, node, op in list(pair.under_way):
        if node == "b":
            pair.deliver(sender, node, op)
    pair.rigs["b"].turn()
    for sender, node, op in list(pair.under_way):
        if sender == "b":
            pair.deliver(sender, node, op)
    assert "x" not in pair.rig.outcomes


def test_a_member_that_leaves_counts_until_that_is_agreed_on(tmp_path):
    pair = Pair(tmp_path, "bc")
    pair.lead(insync="abc")
    pair.carry()
    pair.master.link_down("c")
    pair.names.remove("c")
    pair.rig.append("x")
    pair.carry()
    pair.move(5.1)
    assert pair.master.proposed is not None
    assert pair.master.proposed.insync == ("a", "b")
    assert pair.rig.outcomes == {}
    pair.agree()
    assert pair.rig.outcomes == {"x": None}
    assert pair.master.stalled is None


def test_a_master_that_nobody_agrees_with_stalls(tmp_path):
    pair = Pair(tmp_path, "bc")
    pair.lead(insync="abc")
    pair.carry()
    pair.master.link_down("c")
    pair.names.remove("c")
    pair.rig.append("x")
    pair.carry()
    pair.move(5.1)
    pair.move(4.0)
    assert pair.master.stalled is None
    pair.move(1.1)
    assert pair.master.stalled is not None
    assert "registry" in pair.master.stalled
    error = pair.rig.outcomes["x"]
    assert error is not None
    assert error.outcome_unknown


def test_a_link_that_is_full_is_tried_again(tmp_path):
    pair = Pair(tmp_path)
    pair.lead()
    pair.carry()
    pair.posts["a"].full = True
    pair.rig.append("x")
    pair.carry()
    assert pair.rig.outcomes == {}
    pair.posts["a"].full = False
    pair.move(0.1)
    pair.carry()
    assert pair.rig.outcomes == {"x": None}


def test_a_segment_stays_as_long_as_a_replica_copies_it(tmp_path):
    pair = Pair(tmp_path)
    pair.lead()
    pair.carry()
    for number in range(200):
        pair.rig.append(number)
        pair.carry()
    bases = pair.rig.journal.bases
    assert len(bases) > 2
    assert not pair.master.keep(bases[0])
    feed = pair.master._feeds["b"]
    feed.begin(bases[1] + 1, pair.rig.timer.now)
    assert not pair.master.keep(bases[0])
    assert pair.master.keep(bases[1])
