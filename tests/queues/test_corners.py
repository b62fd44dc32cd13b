"""Corners in which messages were lost, sent twice or counted wrongly once."""

from __future__ import annotations

from typing import Any

from chappe.queues.compaction import live
from chappe.queues.storage import Found
from tests.queues.rig import held_bench, people


def test_what_waits_for_whoever_comes_is_needed_though_somebody_is_expected() -> None:
    bench, _ = held_bench()
    bench.send(5)
    bench.send(consumers=["x"])
    state = bench.queue.state
    lane = state.lanes[0]
    assert state.low(lane) == 0
    assert live(state, lane, range(1, 7)) == [1, 2, 3, 4, 5, 6]


def test_what_a_group_that_was_given_up_had_done_is_kept_for_the_other() -> None:
    bench, storage = held_bench()
    (a,) = people("a")
    bench.consume(a, group="a")
    bench.queue.members.register("b", "b", None, None)
    bench.settle()
    bench.send()
    bench.ack(a, 1, held=True)
    bench.loop.settle()  # the ack is on its way to the disk
    bench.queue.members.unregister("a", "")
    bench.settle()
    assert not bench.queue.state.groups["b"].at(bench.queue.state.lanes[0]).is_done(1)
    assert storage.discarded == []


def test_a_delayed_message_that_cannot_be_read_yet_is_read_later() -> None:
    bench, storage = held_bench()
    bench.send(due_ms=bench.clock.wall_ms() + 100)
    read = storage.read
    early: list[int] = []

    def too_early(state: Any, lane: int, seq: int, n: int, got: Any) -> None:
        if early:
            read(state, lane, seq, n, got)
        else:
            early.append(seq)
            got(Found([], seq - 1))

    storage.read = too_early  # type: ignore[method-assign]
    bench.later(5)
    assert early == [1]
    assert bench.queue.state.heads[bench.queue.state.lanes[0]] == 1


def test_starts_count_no_attempt_of_what_was_handed_to_nobody() -> None:
    bench, _ = held_bench()
    (a,) = people("a")
    bench.send(50)
    bench.consume(a, 1)
    for _ in range(17):
        bench.restart()
        (a,) = people("a")
        bench.consume(a, 1)
        bench.later(1)
    # The first was handed out each time; of the others a start may have counted one.
    assert bench.queue.letters.count <= 1
    assert bench.queue.state.depth() >= 49


def test_a_letter_of_a_group_that_is_gone_does_not_disturb_who_has_the_message_in_hand() -> None:
    bench, _ = held_bench(attempts_max=1)
    a, b = people("ab")
    bench.consume(a, group="a")
    bench.consume(b, 5, group="b")
    bench.send()
    bench.nack(a, 1)  # dead in a, still in hand in b
    bench.queue.members.unregister("a", "")
    bench.settle()
    told: list[Any] = []
    bench.queue.letters.replay(None, told.append, told.append)
    bench.settle()
    assert told == [1]
    assert b.got == [1]
    bench.ack(b, 1)
    bench.later(5)
    assert b.got == [1, 1]


def test_a_replay_is_for_the_group_it_died_in_not_for_consumers_of_its_name() -> None:
    bench, _ = held_bench(attempts_max=2, retry_s=0.0)
    a, b = people("ab")
    bench.queue.members.register("a", "a", None, None)
    bench.queue.members.register("b", "a", None, None)
    bench.consume(a, group="a")
    bench.consume(b, group="b")
    bench.send()
    bench.ack(b, 1)
    bench.nack(a, 1)
    bench.nack(a, 1)
    told: list[Any] = []
    bench.queue.letters.replay(None, told.append, told.append)
    bench.settle()
    assert (a.got, b.got) == ([1, 1, 1], [1])
