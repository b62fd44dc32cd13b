"""Order: of a key, of a lane, and of nothing else (Q4, Q6)."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chappe.errors import Overload
from chappe.queues.options import QueueLimits
from tests.queues.rig import Bench, Someone, held_bench, people


def test_the_next_of_a_key_waits_for_the_one_before_and_no_other_does() -> None:
    bench = Bench()
    a, b = people("ab")
    bench.consume(a)
    bench.consume(b)
    for key in ("k", "k", "other", None, "k"):
        bench.send(key=key)
    assert sorted(a.got + b.got) == [1, 3, 4]
    bench.ack(a, 1)
    assert sorted(a.got + b.got) == [1, 2, 3, 4]


def test_a_message_under_retry_holds_back_its_key_only() -> None:
    bench = Bench(retry_s=10.0)
    (a,) = people("a")
    bench.consume(a)
    bench.send(2, key="k")
    bench.nack(a, 1)
    bench.send(key="other")
    bench.send()
    assert a.got == [1, 3, 4]
    bench.later(10)
    assert a.got == [1, 3, 4, 1]
    bench.ack(a, 1)
    assert a.got == [1, 3, 4, 1, 2]


def test_after_a_dead_letter_the_next_of_its_key_goes() -> None:
    bench = Bench(attempts_max=1)
    (a,) = people("a")
    bench.consume(a)
    bench.send(3, key="k")
    bench.nack(a, 1)
    assert a.got == [1, 2]
    assert bench.queue.letters.count == 1


def test_each_group_has_its_own_order() -> None:
    bench = Bench()
    a, b = people("ab")
    bench.consume(a, group="a")
    bench.consume(b, group="b")
    bench.send(2, key="k")
    bench.ack(a, 1)
    assert (a.got, b.got) == ([1, 2], [1])


def test_an_ordered_lane_gives_one_at_a_time_and_the_lanes_do_not_wait_for_each_other() -> None:
    bench = Bench(ordered=True, lanes=2)
    (a,) = people("a")
    bench.consume(a)
    bench.send(6)
    lanes = [bench.item(a, message).record.lane for message in a.got]
    assert sorted(lanes) == [1, 2]
    bench.ack(a, a.got[0])
    assert len(a.got) == 3
    assert bench.item(a, a.got[2]).record.lane == lanes[0]


def test_an_ordered_lane_waits_out_the_retry() -> None:
    bench = Bench(ordered=True, retry_s=10.0)
    (a,) = people("a")
    bench.consume(a)
    bench.send(2)
    bench.nack(a, 1)
    bench.later(9)
    assert a.got == [1]
    bench.later(2)
    bench.ack(a, 1)
    assert a.got == [1, 1, 2]


def test_what_waits_behind_a_key_counts_as_in_hand() -> None:
    bench = Bench(None, QueueLimits(open_max=3))
    (a,) = people("a")
    bench.consume(a)
    bench.send(5, key="k")
    bench.send()
    assert a.got == [1]
    assert bench.group().in_hand == 3
    for message in (1, 2, 3):
        bench.ack(a, message)
    assert a.got in ([1, 2, 3, 4, 6], [1, 2, 3, 6, 4])


def test_the_order_of_a_key_holds_across_a_restart() -> None:
    bench, _ = held_bench(retry_s=0.0)
    (a,) = people("a")
    bench.consume(a)
    bench.send(4, key="k")
    bench.ack(a, 1)
    assert a.got == [1, 2]
    bench.restart()
    (b,) = people("b")
    bench.consume(b)
    for message in (2, 3, 4):
        assert b.got[-1] == message
        bench.ack(b, message)


class Trade:
    """Sends, acks, nacks, comings and goings, some of them before a commit is done."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.bench, self.storage = held_bench(
            retry_s=1.0, retry_max_s=4.0, attempts_max=6, lanes=2, ack_timeout_s=30.0
        )
        self.keys: dict[int, str | None] = {}
        self.done: dict[str, set[int]] = {"g": set(), "h": set()}
        self.staff: list[tuple[str, Any]] = []
        self.held = False
        for group in self.done:
            self.hire(group)

    def hire(self, group: str) -> None:
        who: Any = Someone(group)
        self.staff.append((group, who))
        self.bench.consume(who, self.random.randint(1, 4), group=group, held=self.held)

    def send(self) -> None:
        key = self.random.choice(["k", "l", None])
        self.bench.send(key=key, held=self.held)
        self.keys[self.bench.ids] = key

    def answer(self) -> None:
        if self.bench.loans.lent:
            who, message = self.random.choice(list(self.bench.loans.lent))
            self.ack(who, message) if self.random.random() < 0.75 else self.bench.nack(
                who, message, held=self.held
            )

    def ack(self, who: Any, message: int) -> None:
        self.done[self.bench.item(who, message).group.state.name].add(message)
        self.bench.ack(who, message, held=self.held)

    def fire(self) -> None:
        if self.staff:
            group, who = self.staff.pop(self.random.randrange(len(self.staff)))
            self.bench.leave(who, group=group)

    def wait(self) -> None:
        self.bench.later(1.5)

    def check(self) -> None:
        """No message is with anybody while an earlier one of its key is not done with."""
        for letter in self.bench.outlet.letters:
            assert letter.death is not None
            self.done[letter.death.group].add(letter.id)
        for (_, message), item in self.bench.loans.lent.items():
            key, done = self.keys[message], self.done[item.group.state.name]
            if key is not None:
                assert all(self.keys[one] != key or one in done for one in range(1, message))

    def finish(self) -> None:
        """Let good consumers do what is left."""
        self.held = False
        for group in self.done:
            self.hire(group)
        for _ in range(200):
            for who, message in list(self.bench.loans.lent):
                self.ack(who, message)
                self.check()
            if self.bench.queue.state.depth() == 0:
                return
            self.bench.later(2)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 1 << 32))
def test_whatever_happens_no_key_overtakes_itself_and_nothing_is_lost(seed: int) -> None:  # Q4, Q6
    trade = Trade(seed)
    random = trade.random
    common: list[Any] = [trade.send, trade.answer] * 3
    for _ in range(60):
        trade.held = random.random() < 0.3
        step = random.choice([*common, trade.fire, trade.wait, None])
        step() if step is not None else trade.hire(random.choice(["g", "h"]))
        trade.check()
    trade.finish()
    trade.check()
    assert trade.done == {"g": set(trade.keys), "h": set(trade.keys)}
    assert trade.bench.queue.state.waiting_bytes() == 0
    assert trade.storage.pending == []


@pytest.mark.parametrize("ordered", [True, False])
def test_the_next_goes_only_once_the_end_of_the_one_before_is_durable(ordered: bool) -> None:
    bench, storage = held_bench(ordered=ordered, attempts_max=1, retry_s=0.0)
    (a,) = people("a")
    bench.consume(a)
    bench.send(3, key="k")
    bench.ack(a, 1, held=True)
    bench.loop.settle()
    assert a.got == [1]
    bench.settle()
    assert a.got == [1, 2]
    bench.nack(a, 2, held=True)  # dead
    bench.loop.settle()
    assert a.got == [1, 2]
    bench.settle()
    assert a.got == [1, 2, 3]
    assert storage.pending == []


def test_one_whose_ack_failed_comes_again_before_the_next() -> None:
    bench, storage = held_bench(retry_s=0.0)
    a, b = people("ab")
    bench.consume(a)
    bench.send(2, key="k")
    bench.ack(a, 1, held=True)
    bench.loop.settle()
    storage.fail(Overload("the disk failed"))
    bench.later(1)
    bench.consume(b)
    assert (a.got, b.got) == ([1], [1])
    bench.ack(b, 1)
    assert b.got == [1, 2]
