"""A volatile queue under anything that may happen, in any order (H17)."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from chappe.errors import Overload
from chappe.queues.consumer import Item
from chappe.queues.group import Group
from chappe.queues.options import QueueLimits
from tests.queues.rig import Bench, Someone

NAMES = st.sampled_from("abcd")


class QueueMachine(RuleBasedStateMachine):
    """What is promised holds after each step."""

    def __init__(self) -> None:
        super().__init__()
        limits = QueueLimits(unacked_max=4, waiting_max=6, bytes_max=600, volatile_dead_max=3)
        self.bench = Bench(
            None, limits, depth_max=8, bytes_max=50, attempts_max=3, ack_timeout_s=5, retry_max_s=2
        )
        self.people: dict[str, Any] = {name: Someone(name) for name in "abcd"}
        self.sizes: dict[int, int] = {}
        self.acked: set[int] = set()
        self.bench.queue.members.group("")

    @property
    def group(self) -> Group:
        return self.bench.group()

    @rule(size=st.integers(1, 20), key=st.sampled_from([None, None, "k", "l"]))
    def send(self, size: int, key: str | None) -> None:
        state = self.bench.queue.state
        full = state.depth() >= 8 or state.waiting_bytes() + size > 50
        try:
            self.bench.send(1, b"1" * size, key=key)
        except Overload:
            assert full
        else:
            assert not full
            self.sizes[self.bench.ids] = size

    @rule(count=st.integers(2, 4), key=st.sampled_from([None, None, "k"]))
    def send_together(self, count: int, key: str | None) -> None:
        state = self.bench.queue.state
        if state.depth() + count <= 8 and state.waiting_bytes() + count <= 50:
            self.bench.send(count, key=key)
            self.sizes |= dict.fromkeys(range(self.bench.ids - count + 1, self.bench.ids + 1), 1)

    @rule(name=NAMES, n=st.integers(1, 4), wait_s=st.sampled_from([0, 3, 20]))
    def fetch(self, name: str, n: int, wait_s: int) -> None:
        who = self.people[name]
        answers = len(who.fetched) + len(who.refused)
        try:
            self.bench.fetch(who, n, wait_s)
        except Overload:
            return
        if not wait_s:
            assert len(who.fetched) + len(who.refused) == answers + 1

    @rule(name=NAMES, credit=st.integers(0, 4))
    def consume(self, name: str, credit: int) -> None:
        self.bench.consume(self.people[name], credit)

    @rule(at=st.integers(0, 30), nack=st.booleans(), delay_s=st.sampled_from([0.0, 1.5]))
    def answer(self, at: int, nack: bool, delay_s: float) -> None:
        lent = list(self.bench.loans.lent)
        if lent:
            who, message = lent[at % len(lent)]
            if nack:
                self.bench.nack(who, message, delay_s)
            else:
                self.acked.add(message)
                self.bench.ack(who, message)

    @rule(name=NAMES, count=st.integers(1, 4))
    def answer_together(self, name: str, count: int) -> None:
        who = self.people[name]
        messages = [message for session, message in self.bench.loans.lent if session is who]
        if messages:
            self.acked.update(messages[:count])
            self.bench.ack_all(who, messages[:count])

    @rule(name=NAMES)
    def die(self, name: str) -> None:
        who = self.people[name]
        self.bench.leave(who)
        assert not any(session is who for session, _ in self.bench.loans.lent)
        self.people[name] = Someone(name)

    @rule(name=NAMES, room=st.booleans())
    def fill(self, name: str, room: bool) -> None:
        self.people[name].room = room

    @rule(seconds=st.sampled_from([0.5, 2, 6]))
    def wait(self, seconds: float) -> None:
        self.bench.later(seconds)

    def _dead(self) -> set[int]:
        return {letter.id for letter in self.bench.outlet.letters}

    def _resting(self) -> list[Item]:
        return list(self.group.retries.resting)

    @invariant()
    def nothing_is_lost_and_nothing_is_counted_twice(self) -> None:
        state = self.bench.queue.state
        left = self.sizes.keys() - self.acked - self._dead()
        assert not self.acked & self._dead()
        assert state.depth() == len(left) <= 8
        assert state.waiting_bytes() == sum(self.sizes[one] for one in left) <= 50
        letters = [letter.id for letter in self.bench.outlet.letters][-3:]
        assert self.bench.queue.letters.count == len(letters)
        held = sum(self.sizes[one] for one in (*left, *letters))
        assert self.bench.loans.bytes_held == held

    @invariant()
    def each_consumer_has_what_is_lent_to_it_and_no_more_than_it_may(self) -> None:
        held = 0
        for session, consumer in self.group.takers.consumers.items():
            assert consumer.committed <= 4
            assert consumer.fetching == sum(fetch.wanted for fetch in consumer.fetches)
            held += len(consumer.unacked)
            for message, item in consumer.unacked.items():
                assert self.bench.loans.lent[session, message] is item
                assert item.consumer is consumer
                assert 1 <= item.attempts <= 3
        assert held == len(self.bench.loans.lent)

    @invariant()
    def nobody_waits_while_there_is_something_to_give(self) -> None:
        group = self.group
        if group.takers.line:
            assert not group.retries.returned
            assert all(reader.take() is None for reader in group.intake.readers.values())
        for consumer in group.takers.consumers.values():
            assert not consumer.wants or consumer in group.takers.line

    @invariant()
    def the_keys_of_what_is_lent_differ(self) -> None:
        keys = [item.key for item in self.bench.loans.lent.values() if item.key is not None]
        assert len(keys) == len(set(keys))

    @invariant()
    def each_deadline_is_for_something(self) -> None:
        group, loans = self.group, self.bench.loans
        stalled = sum(one.stalled is not None for one in group.takers.consumers.values())
        fetches = sum(len(one.fetches) for one in group.takers.consumers.values())
        assert group.takers.fetches == fetches <= 6
        lent = {id(item.loan): item.loan for item in loans.lent.values()}
        assert all(item in item.loan.items for item in loans.lent.values() if item.loan is not None)
        assert None not in lent.values()
        expected = len(lent) + fetches + stalled + len(self._resting())
        assert len(loans.deadlines) == expected

    def teardown(self) -> None:
        """Whatever happened: one healthy consumer gets all that is left, oldest first."""
        for who in self.people.values():
            self.bench.leave(who)
        self.bench.later(10)
        dead = self._dead()
        expected = sorted(self.sizes.keys() - self.acked - dead)
        last: Any = Someone("last")
        got: list[int] = []
        while self.bench.queue.state.depth():
            self.bench.fetch(last, n=4)
            new = last.got[len(got) :]
            assert new, "what is kept can be fetched"
            got += new
            self.bench.ack(last, *new)
        assert sorted(got) == expected
        assert self.bench.queue.state.waiting_bytes() == 0


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
