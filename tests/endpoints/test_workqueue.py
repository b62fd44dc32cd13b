"""A work queue by itself: who gets what, in which order, and how much is kept (H17)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from chappe.endpoints.consumer import Item, Loans
from chappe.endpoints.limits import QueueLimits, QueueOptions
from chappe.endpoints.workqueue import WorkQueue
from chappe.errors import BadRequest, Overload, RequestError, Unreachable
from chappe.message import Message


class Someone:
    """Stands for a session: the queue only tells one from another."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.got: list[int] = []
        self.fetched: list[tuple[int | None, int]] = []
        self.refused: list[tuple[int | None, RequestError]] = []
        self.room = True


class KeptOutlet:
    """Keeps what the queue decides."""

    def __init__(self) -> None:
        self.drops: list[tuple[str, int]] = []

    def deliver(self, session: Any, message: Message) -> bool:
        if session.room:
            session.got.append(message.id)
        return session.room

    def fetched(self, session: Any, request: int | None, n: int) -> None:
        session.fetched.append((request, n))

    def refused(self, session: Any, request: int | None, error: RequestError) -> None:
        session.refused.append((request, error))

    def dropped(self, reason: str, messages: int) -> None:
        self.drops.append((reason, messages))


class Grounds:
    """A queue, numbered messages, and time."""

    def __init__(self, limits: QueueLimits | None = None, **options: Any) -> None:
        self.outlet = KeptOutlet()
        self.loans = Loans()
        self.now = 100.0
        self.sent = 0
        self.queue = WorkQueue(
            "queue:jobs",
            QueueOptions(**options),
            limits or QueueLimits(),
            self.loans,
            self.outlet,
        )

    def send(self, count: int = 1, payload: bytes = b"1") -> None:
        for _ in range(count):
            self.sent += 1
            message = Message(self.sent, "user:a", "queue:jobs", 0, payload)
            self.queue.send(message, self.now)

    def fetch(self, who: Any, n: int = 1, wait_s: float = 0, request: int | None = 7) -> None:
        self.queue.fetch(who, request, n, wait_s, self.now)

    def consume(self, who: Any, credit: int) -> None:
        self.queue.consume(who, credit, self.now)

    def item(self, message: int) -> Item:
        return self.loans.lent[message]

    def ack(self, *messages: int) -> None:
        for message in messages:
            self.queue.ack(self.item(message), self.now)

    def nack(self, message: int) -> None:
        self.queue.give_back(self.item(message), self.now)

    def leave(self, *who: Any) -> None:
        """Let some leave together."""
        for each in who:
            self.queue.leave(each, self.now)
        self.later(0)

    def later(self, seconds: float) -> None:
        self.now += seconds
        self.loans.deadlines.lapse(self.now)


def people(names: str) -> list[Any]:
    return [Someone(name) for name in names]


def test_each_message_goes_to_the_next_who_waits() -> None:
    grounds = Grounds()
    a, b, c = people("abc")
    for who in (a, b, c):
        grounds.fetch(who, wait_s=10)
    assert a.fetched == []
    grounds.send(4)
    assert (a.got, b.got, c.got) == ([1], [2], [3])
    assert a.fetched == b.fetched == c.fetched == [(7, 1)]
    grounds.fetch(a)
    assert a.got == [1, 4]


def test_with_nobody_waiting_messages_are_kept_in_order() -> None:
    grounds = Grounds()
    (a,) = people("a")
    grounds.send(5)
    grounds.fetch(a, n=3)
    grounds.fetch(a, n=3, request=8)
    assert a.got == [1, 2, 3, 4, 5]
    assert a.fetched == [(7, 3), (8, 2)]


def test_a_fetch_that_does_not_wait_is_answered_at_once() -> None:
    grounds = Grounds()
    (a,) = people("a")
    grounds.fetch(a)
    assert a.fetched == [(7, 0)]
    grounds.send()
    assert a.got == []
    assert len(grounds.loans.deadlines) == 0


def test_a_wait_ends_with_nothing_when_its_time_is_over() -> None:
    grounds = Grounds()
    (a,) = people("a")
    grounds.fetch(a, wait_s=5)
    grounds.later(4.9)
    assert a.fetched == []
    grounds.later(0.2)
    assert a.fetched == [(7, 0)]
    grounds.send()
    assert a.got == []


def test_what_is_acknowledged_is_gone_and_its_room_free() -> None:
    grounds = Grounds(depth_max=1)
    (a,) = people("a")
    grounds.send()
    grounds.fetch(a)
    with pytest.raises(Overload):
        grounds.send()
    grounds.ack(1)
    assert (grounds.queue.depth, grounds.queue.bytes, grounds.loans.bytes_held) == (0, 0, 0)
    assert len(grounds.loans.deadlines) == 0
    grounds.send()


@pytest.mark.parametrize(
    ("options", "limits", "payload", "fit"),
    [
        ({"depth_max": 3}, QueueLimits(), b"12", 3),
        ({"bytes_max": 10}, QueueLimits(), b"123", 3),
        ({}, QueueLimits(bytes_max=10), b"1234", 2),
    ],
)
def test_past_the_bound_a_message_is_refused_and_the_kept_ones_stay(
    options: dict[str, Any], limits: QueueLimits, payload: bytes, fit: int
) -> None:
    grounds = Grounds(limits, **options)
    (a,) = people("a")
    grounds.send(fit, payload)
    with pytest.raises(Overload):
        grounds.send(1, payload)
    grounds.fetch(a, n=10)
    assert a.got == list(range(1, fit + 1))


def test_a_message_larger_than_the_queue_is_wrong_not_early() -> None:
    with pytest.raises(BadRequest, match="data"):
        Grounds(bytes_max=2).send(1, b"123")


def test_who_dies_hands_on_what_it_had_in_order_and_at_the_front() -> None:
    grounds = Grounds()
    a, b, c = people("abc")
    grounds.send(6)
    grounds.fetch(a, n=2)
    grounds.fetch(b, n=1)
    grounds.fetch(a, n=1)
    grounds.nack(3)  # b's, younger than two of a's
    grounds.leave(a)
    grounds.fetch(c, n=10)
    assert c.got == [1, 2, 3, 4, 5, 6]


def test_what_is_handed_back_goes_to_those_who_wait_one_each() -> None:
    grounds = Grounds()
    a, b, c = people("abc")
    grounds.send(5)
    grounds.fetch(a, n=5)
    grounds.fetch(b, n=5, wait_s=10)
    grounds.fetch(c, n=5, wait_s=10)
    grounds.leave(a)
    assert (b.got, c.got) == ([1, 3, 5], [2, 4])
    assert (b.fetched, c.fetched) == ([(7, 3)], [(7, 2)])


def test_those_who_leave_together_use_up_no_attempts_of_each_others_messages() -> None:
    grounds = Grounds(attempts_max=2)
    crowd, last = people("abcdef"), Someone("z")
    grounds.send()
    for who in crowd:
        grounds.consume(who, 1)
    grounds.consume(last, 1)
    grounds.leave(*crowd)
    assert last.got == [1]
    assert [who.got for who in crowd[1:]] == [[]] * 5


def test_who_dies_waits_no_longer() -> None:
    grounds = Grounds()
    a, b = people("ab")
    grounds.fetch(a, wait_s=10)
    grounds.consume(a, 5)
    grounds.fetch(b, wait_s=10)
    grounds.leave(a)
    grounds.leave(a)
    grounds.send()
    assert (a.got, b.got) == ([], [1])
    grounds.later(20)
    assert a.fetched == []


def test_an_item_not_acknowledged_in_time_goes_to_the_next() -> None:
    grounds = Grounds(ack_timeout_s=60)
    a, b = people("ab")
    grounds.send()
    grounds.fetch(a)
    grounds.fetch(b, wait_s=200)
    grounds.later(59)
    assert b.got == []
    grounds.later(2)
    assert b.got == [1]
    consumer = grounds.item(1).consumer
    assert consumer is not None
    assert consumer.session is b


def test_after_so_many_attempts_a_message_is_dropped_and_counted() -> None:
    grounds = Grounds(attempts_max=16)
    (a,) = people("a")
    grounds.send()
    for attempt in range(16):
        grounds.fetch(a)
        assert len(a.got) == attempt + 1
        grounds.nack(1)
    assert grounds.outlet.drops == [("attempts", 1)]
    grounds.fetch(a, request=8)
    assert a.fetched[-1] == (8, 0)
    assert (grounds.queue.depth, grounds.loans.bytes_held) == (0, 0)


def test_a_consumer_without_room_uses_up_no_attempt() -> None:
    grounds = Grounds(attempts_max=1)
    a, b = people("ab")
    a.room = False
    grounds.consume(a, 1)
    grounds.send()
    grounds.fetch(b)
    assert b.got == [1]


def test_credit_is_how_many_are_unacknowledged_and_each_ack_brings_one() -> None:
    grounds = Grounds()
    (a,) = people("a")
    grounds.consume(a, 2)
    grounds.send(5)
    assert a.got == [1, 2]
    grounds.ack(2)
    assert a.got == [1, 2, 3]
    grounds.consume(a, 0)
    grounds.ack(1, 3)
    assert a.got == [1, 2, 3]
    grounds.consume(a, 1)
    assert a.got == [1, 2, 3, 4]


def test_those_who_consume_take_turns() -> None:
    grounds = Grounds()
    a, b = people("ab")
    grounds.consume(a, 10)
    grounds.consume(b, 10)
    grounds.send(6)
    assert (a.got, b.got) == ([1, 3, 5], [2, 4, 6])


def test_what_one_consumer_has_is_bounded() -> None:
    grounds = Grounds(QueueLimits(unacked_max=3))
    (a,) = people("a")
    grounds.send(9)
    grounds.fetch(a, n=2)
    grounds.fetch(a, n=3, request=8)
    assert a.fetched == [(7, 2), (8, 1)]
    with pytest.raises(Overload, match="acknowledge"):
        grounds.fetch(a)
    grounds.consume(a, 3)
    assert a.got == [1, 2, 3]
    grounds.ack(1)
    assert a.got == [1, 2, 3, 4]


def test_waiting_fetches_count_for_the_consumer_and_for_the_queue() -> None:
    grounds = Grounds(QueueLimits(unacked_max=4, waiting_max=3))
    a, b = people("ab")
    grounds.fetch(a, n=3, wait_s=10)
    grounds.fetch(a, n=3, wait_s=10)
    with pytest.raises(Overload, match="acknowledge"):
        grounds.fetch(a, wait_s=10)
    grounds.fetch(b, wait_s=10)
    with pytest.raises(Overload, match="wait"):
        grounds.fetch(b, wait_s=10)
    grounds.later(10)
    grounds.fetch(b, wait_s=10)


def test_a_consumer_without_room_is_passed_over_and_tried_again() -> None:
    grounds = Grounds(QueueLimits(stall_s=1.0))
    a, b = people("ab")
    a.room = False
    grounds.consume(a, 5)
    grounds.consume(b, 1)
    grounds.send(2)
    assert (a.got, b.got) == ([], [1])
    a.room = True
    grounds.send()
    assert a.got == []  # nobody asks it for a second
    grounds.later(1.0)
    assert a.got == [2, 3]


def test_a_fetch_without_room_is_told_so_and_the_message_goes_on() -> None:
    grounds = Grounds()
    a, b = people("ab")
    a.room = False
    grounds.fetch(a, wait_s=10)
    grounds.fetch(b, wait_s=10)
    grounds.send()
    ((request, error),) = a.refused
    assert (request, error.code) == (7, "overload")
    assert b.got == [1]


def test_to_remove_a_queue_answers_who_waits_and_counts_what_is_lost() -> None:
    grounds = Grounds()
    a, b = people("ab")
    grounds.send(3)
    grounds.fetch(a, n=1)
    grounds.fetch(b, n=2)
    grounds.fetch(b, wait_s=10, request=8)
    grounds.consume(a, 5)
    assert grounds.queue.close(Unreachable("removed")) == [a, b]
    ((request, error),) = b.refused
    assert (request, error.code) == (8, "unreachable")
    assert grounds.outlet.drops == [("queue_removed", 3)]
    assert grounds.loans.lent == {}
    assert len(grounds.loans.deadlines) == grounds.loans.bytes_held == 0


NAMES = st.sampled_from("abcd")


class QueueMachine(RuleBasedStateMachine):
    """Anything may happen in any order; what is promised holds after each step."""

    def __init__(self) -> None:
        super().__init__()
        limits = QueueLimits(unacked_max=4, waiting_max=6, bytes_max=60)
        self.grounds = Grounds(limits, depth_max=8, bytes_max=50, attempts_max=3, ack_timeout_s=5)
        self.people: dict[str, Any] = {name: Someone(name) for name in "abcd"}
        self.accepted: set[int] = set()
        self.acked: set[int] = set()
        self.handed: dict[int, int] = {}
        self.seen = {id(who): 0 for who in self.people.values()}
        self.waiting: dict[str, int] = dict.fromkeys("abcd", 0)

    @rule(size=st.integers(1, 20))
    def send(self, size: int) -> None:
        queue = self.grounds.queue
        full = queue.depth >= 8 or queue.bytes + size > 50
        try:
            self.grounds.send(1, b"1" * size)
        except Overload:
            assert full
        else:
            assert not full
            self.accepted.add(self.grounds.sent)

    @rule(name=NAMES, n=st.integers(1, 4), wait_s=st.sampled_from([0, 3, 20]))
    def fetch(self, name: str, n: int, wait_s: int) -> None:
        who = self.people[name]
        answers = len(who.fetched) + len(who.refused)
        try:
            self.grounds.fetch(who, n, wait_s)
        except Overload:
            return
        if not wait_s:
            assert len(who.fetched) + len(who.refused) == answers + 1

    @rule(name=NAMES, credit=st.integers(0, 4))
    def consume(self, name: str, credit: int) -> None:
        self.grounds.consume(self.people[name], credit)

    @rule(at=st.integers(0, 30), nack=st.booleans())
    def settle(self, at: int, nack: bool) -> None:
        lent = list(self.grounds.loans.lent)
        if not lent:
            return
        message = lent[at % len(lent)]
        if nack:
            self.grounds.nack(message)
        else:
            self.acked.add(message)
            self.grounds.ack(message)

    @rule(name=NAMES)
    def die(self, name: str) -> None:
        who = self.people[name]
        self.grounds.leave(who)
        assert not any(item.consumer.session is who for item in self._lent())
        fresh: Any = Someone(name)
        self.people[name] = fresh
        self.seen[id(fresh)] = 0

    @rule(name=NAMES, room=st.booleans())
    def fill(self, name: str, room: bool) -> None:
        self.people[name].room = room

    @rule(seconds=st.sampled_from([0.5, 2, 6]))
    def wait(self, seconds: float) -> None:
        self.grounds.later(seconds)

    def _lent(self) -> list[Any]:
        return list(self.grounds.loans.lent.values())

    @invariant()
    def nothing_is_lost_and_nothing_is_in_two_places(self) -> None:
        queue = self.grounds.queue
        lent = [item.message.id for item in self._lent()]
        kept = [item.message.id for item in (*queue._returned, *queue._fresh)]
        everywhere = lent + kept
        assert len(everywhere) == len(set(everywhere))
        dropped = sum(n for _, n in self.grounds.outlet.drops)
        assert len(self.accepted) == len(everywhere) + len(self.acked) + dropped
        assert set(everywhere).isdisjoint(self.acked)
        assert queue.depth == len(everywhere)

    @invariant()
    def each_consumer_has_what_is_lent_to_it_and_no_more_than_it_may(self) -> None:
        held = 0
        for consumer in self.grounds.queue._consumers.values():
            assert consumer.committed <= 4
            assert consumer.fetching == sum(fetch.wanted for fetch in consumer.fetches)
            held += len(consumer.unacked)
            for message in consumer.unacked:
                assert self.grounds.item(message).consumer is consumer
        assert held == len(self.grounds.loans.lent)

    @invariant()
    def the_oldest_goes_first(self) -> None:
        queue = self.grounds.queue
        returned = [item.serial for item in queue._returned]
        fresh = [item.serial for item in queue._fresh]
        assert fresh == sorted(fresh)
        assert not returned or not fresh or max(returned) < min(fresh)

    @invariant()
    def nobody_waits_while_there_is_something_to_give(self) -> None:
        queue = self.grounds.queue
        assert not queue._line or not (queue._returned or queue._fresh)
        for consumer in queue._consumers.values():
            assert not consumer.wants or consumer in queue._line

    @invariant()
    def what_is_kept_is_counted_and_bounded(self) -> None:
        queue, loans = self.grounds.queue, self.grounds.loans
        items = (*self._lent(), *queue._returned, *queue._fresh)
        size = sum(len(item.message.payload) for item in items)
        assert queue.bytes == loans.bytes_held == size <= 50
        assert queue.depth <= 8
        assert queue._fetches == sum(len(c.fetches) for c in queue._consumers.values()) <= 6
        stalled = sum(c.stalled is not None for c in queue._consumers.values())
        assert len(loans.deadlines) == len(loans.lent) + queue._fetches + stalled

    def teardown(self) -> None:
        """Whatever happened: one healthy consumer gets all that is left, oldest first."""
        for who in self.people.values():
            self.grounds.leave(who)
        expected = sorted(
            item.message.id for item in (*self.grounds.queue._returned, *self.grounds.queue._fresh)
        )
        last: Any = Someone("last")
        got: list[int] = []
        while self.grounds.queue.depth:
            self.grounds.fetch(last, n=4)
            new = last.got[len(got) :]
            assert new, "what is kept can be fetched"
            got += new
            self.grounds.ack(*new)
        assert got == expected


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
