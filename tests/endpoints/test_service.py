"""A service by itself: who is asked, who is told, and never too late (H18)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from chappe.endpoints.limits import ServiceLimits
from chappe.endpoints.provider import Call, Calls, Provider, Roster
from chappe.endpoints.service import Service
from chappe.errors import Overload, RequestError, Unreachable


class Someone:
    """Stands for a session: the service only tells one from another."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked: list[str] = []
        self.failures: list[tuple[str, str, bool]] = []
        self.room = True

    def __repr__(self) -> str:
        return self.name


class KeptExchange:
    """Keeps what the service decides."""

    def hand_over(self, session: Any, call: Call) -> bool:
        if session.room:
            assert call.payload, "what is handed over is whole"
            session.asked.append(call.id)
        return session.room

    def failed(self, call: Call, error: RequestError, *, outcome_unknown: bool) -> None:
        requester: Any = call.requester
        requester.failures.append((call.id, error.code.value, outcome_unknown))


class Grounds:
    """A service, numbered calls, and time."""

    def __init__(self, **limits: Any) -> None:
        self.calls = Calls()
        self.now = 100.0
        self.serial = 0
        self.service = Service(
            "service:billing", ServiceLimits(**limits), self.calls, KeptExchange()
        )

    def ask(
        self, who: Any, *, idempotent: bool = False, timeout_s: float = 30, payload: bytes = b"1"
    ) -> str:
        self.serial += 1
        number = f"n.{self.serial}"
        call = Call(self.service, number, who, self.serial, payload, False, idempotent)
        self.service.request(call, who, timeout_s, self.now)
        return number

    def provide(self, *who: Any) -> None:
        for each in who:
            self.service.provide(each, self.now)

    def respond(self, number: str) -> None:
        self.service.answered(self.calls.by_id[number], self.now)

    def die(self, *who: Any) -> None:
        """Let some die together."""
        for each in who:
            for call in self.calls.of(each):
                call.service.abandon(call)
            self.service.leave(each, self.now)
        self.later(0)

    def later(self, seconds: float) -> None:
        self.now += seconds
        self.calls.deadlines.lapse(self.now)

    def at_rest(self) -> bool:
        return not (
            self.calls.by_id
            or self.calls.by_requester
            or len(self.calls.deadlines)
            or self.service._bytes
        )


def people(names: str) -> list[Any]:
    return [Someone(name) for name in names]


def test_requests_go_to_providers_in_turn() -> None:
    grounds = Grounds()
    a, b, r = people("abr")
    grounds.provide(a, b)
    for _ in range(4):
        grounds.ask(r)
    assert (a.asked, b.asked) == (["n.1", "n.3"], ["n.2", "n.4"])


def test_the_least_busy_is_asked_first() -> None:
    grounds = Grounds()
    a, b, r = people("abr")
    grounds.provide(a, b)
    for _ in range(4):
        grounds.ask(r)
    grounds.respond("n.2")
    grounds.respond("n.4")
    grounds.ask(r)
    grounds.ask(r)
    assert b.asked == ["n.2", "n.4", "n.5", "n.6"]


def test_beyond_what_providers_may_have_in_hand_requests_wait_in_order() -> None:
    grounds = Grounds(in_flight_max=1)
    a, b, r = people("abr")
    grounds.provide(a)
    for _ in range(3):
        grounds.ask(r)
    assert a.asked == ["n.1"]
    grounds.respond("n.1")
    assert a.asked == ["n.1", "n.2"]
    grounds.provide(b)
    assert b.asked == ["n.3"]
    grounds.respond("n.2")
    grounds.respond("n.3")
    assert grounds.at_rest()


def test_past_the_bound_a_request_is_refused() -> None:
    grounds = Grounds(in_flight_max=1, waiting_max=2)
    a, r = people("ar")
    grounds.provide(a)
    for _ in range(3):
        grounds.ask(r)
    with pytest.raises(Overload, match="wait"):
        grounds.ask(r)
    grounds.respond("n.1")
    grounds.ask(r)


def test_payloads_that_are_kept_are_bounded_and_those_handed_over_are_not_kept() -> None:
    grounds = Grounds(in_flight_max=2, bytes_max=10)
    a, r = people("ar")
    grounds.provide(a)
    grounds.ask(r, payload=b"x" * 9)
    grounds.ask(r, payload=b"x" * 9)
    grounds.ask(r, payload=b"x" * 6)
    with pytest.raises(Overload, match="bytes"):
        grounds.ask(r, payload=b"x" * 6)


def test_without_a_provider_a_request_is_unreachable() -> None:
    grounds = Grounds()
    a, r = people("ar")
    with pytest.raises(Unreachable):
        grounds.ask(r)
    grounds.provide(a)
    grounds.die(a)
    assert grounds.service.active == 0
    with pytest.raises(Unreachable):
        grounds.ask(r)


def test_a_request_in_the_hands_of_who_dies_is_unreachable_at_once() -> None:
    grounds = Grounds()
    a, b, r = people("abr")
    grounds.provide(a, b)
    grounds.ask(r)
    grounds.die(a)
    assert r.failures == [("n.1", "unreachable", True)]
    assert b.asked == []
    assert grounds.at_rest()


def test_an_idempotent_one_goes_to_another_in_order_and_first() -> None:
    grounds = Grounds(in_flight_max=2)
    a, b, r = people("abr")
    grounds.provide(a)
    for _ in range(3):
        grounds.ask(r, idempotent=True)
    assert a.asked == ["n.1", "n.2"]
    grounds.provide(b)
    grounds.die(a)
    assert b.asked == ["n.3", "n.1"]
    grounds.respond("n.3")
    assert b.asked == ["n.3", "n.1", "n.2"]
    grounds.respond("n.1")
    grounds.respond("n.2")
    assert r.failures == []
    assert grounds.at_rest()


def test_what_is_repeated_is_not_given_to_those_who_die_together() -> None:
    grounds = Grounds(attempts_max=2)
    a, b, c, r = people("abcr")
    grounds.provide(a)
    grounds.ask(r, idempotent=True)
    grounds.provide(b, c)
    grounds.die(a, b)
    assert (b.asked, c.asked, r.failures) == ([], ["n.1"], [])


def test_with_the_last_provider_all_who_wait_are_told_at_once() -> None:
    grounds = Grounds(in_flight_max=1)
    a, r = people("ar")
    grounds.provide(a)
    grounds.ask(r, idempotent=True)
    grounds.ask(r)
    grounds.die(a)
    assert sorted(r.failures) == [("n.1", "unreachable", True), ("n.2", "unreachable", False)]
    assert grounds.at_rest()


def test_one_that_kills_its_providers_does_not_kill_them_all() -> None:
    grounds = Grounds(attempts_max=3)
    r, *providers = people("rabcd")
    grounds.provide(*providers)
    grounds.ask(r, idempotent=True)
    for provider in providers[:3]:
        assert provider.asked == ["n.1"]
        grounds.die(provider)
    assert providers[3].asked == []
    assert r.failures == [("n.1", "unreachable", True)]


def test_after_its_time_a_request_is_overload_with_an_unknown_outcome() -> None:
    grounds = Grounds(in_flight_max=1)
    a, r = people("ar")
    grounds.provide(a)
    grounds.ask(r, timeout_s=10)
    grounds.ask(r, timeout_s=5)
    grounds.later(6)
    # No provider has seen it: nothing was done.
    assert r.failures == [("n.2", "overload", False)]
    grounds.later(5)
    assert r.failures[1:] == [("n.1", "overload", True)]
    assert grounds.at_rest()
    grounds.ask(r)
    assert a.asked == ["n.1", "n.3"]


def test_who_asks_and_leaves_frees_its_place_in_the_queue_but_not_the_providers_hands() -> None:
    grounds = Grounds(in_flight_max=1, waiting_max=1)
    a, r, s = people("ars")
    grounds.provide(a)
    grounds.ask(r, idempotent=True)
    grounds.ask(r)
    grounds.die(r)
    grounds.ask(s)
    assert a.asked == ["n.1"]
    grounds.respond("n.1")
    assert a.asked == ["n.1", "n.3"]
    grounds.respond("n.3")
    assert grounds.at_rest()
    assert r.failures == []


def test_what_an_absent_one_asked_is_not_repeated_and_ends_in_time() -> None:
    grounds = Grounds()
    a, b, r = people("abr")
    grounds.provide(a)
    grounds.ask(r, idempotent=True)
    grounds.ask(r, idempotent=True)
    grounds.die(r)
    grounds.later(31)
    assert grounds.at_rest()
    grounds.ask(r, idempotent=True)
    grounds.die(r)
    grounds.provide(b)
    grounds.die(a)
    assert b.asked == []
    assert grounds.at_rest()


def test_who_withdraws_is_asked_no_more_and_may_still_answer() -> None:
    grounds = Grounds()
    a, b, r = people("abr")
    grounds.provide(a, b)
    grounds.ask(r)
    assert grounds.service.withdraw(a)
    assert not grounds.service.withdraw(a)
    grounds.ask(r)
    grounds.ask(r)
    assert (a.asked, b.asked) == (["n.1"], ["n.2", "n.3"])
    assert a in grounds.service
    grounds.respond("n.1")
    assert a not in grounds.service
    assert grounds.service.active == 1


def test_who_withdraws_last_leaves_nobody_waiting() -> None:
    grounds = Grounds(in_flight_max=1)
    a, r = people("ar")
    grounds.provide(a)
    grounds.ask(r)
    grounds.ask(r)
    grounds.service.withdraw(a)
    assert r.failures == [("n.2", "unreachable", False)]
    grounds.provide(a)
    grounds.ask(r)
    grounds.respond("n.1")
    assert a.asked == ["n.1", "n.3"]


def test_a_provider_without_room_is_passed_over_and_tried_again() -> None:
    grounds = Grounds(stall_s=1.0)
    a, b, r = people("abr")
    a.room = False
    grounds.provide(a, b)
    grounds.ask(r)
    assert b.asked == ["n.1"]
    b.room = False
    grounds.ask(r)
    a.room = True
    grounds.ask(r)
    assert a.asked == []
    grounds.later(1.0)
    assert a.asked == ["n.2", "n.3"]


def test_a_roster_gives_the_least_busy_whatever_comes_and_goes() -> None:
    roster = Roster(3)
    service: Any = None
    providers = [Provider(service, person) for person in people("abcdef")]
    for number, provider in enumerate(providers):
        provider.calls = dict.fromkeys(map(str, range(number % 4)))  # type: ignore[arg-type]
        roster.place(provider)
    order = []
    while (provider := roster.next()) is not None:
        order.append(provider.session)
        roster.remove(provider)
        roster.remove(provider)
    assert str(order) == "[a, e, b, f, c]"  # d has three in hand and takes no more


class ServiceMachine(RuleBasedStateMachine):
    """Anything may happen in any order; what is promised holds after each step."""

    NAMES = st.sampled_from("abc")

    def __init__(self) -> None:
        super().__init__()
        self.grounds = Grounds(in_flight_max=2, waiting_max=4, bytes_max=40, attempts_max=2)
        self.people: dict[str, Any] = {name: Someone(name) for name in "abc"}
        self.gone: list[Any] = []
        self.asked: dict[str, Any] = {}
        self.idempotent: set[str] = set()
        self.deadline: dict[str, float] = {}
        self.answered: set[str] = set()

    @rule(name=NAMES)
    def provide(self, name: str) -> None:
        self.grounds.provide(self.people[name])

    @rule(name=NAMES)
    def withdraw(self, name: str) -> None:
        self.grounds.service.withdraw(self.people[name])

    @rule(
        name=NAMES, idempotent=st.booleans(), timeout_s=st.sampled_from([1, 5]), n=st.integers(1, 9)
    )
    def ask(self, name: str, idempotent: bool, timeout_s: int, n: int) -> None:
        who, grounds = self.people[name], self.grounds
        try:
            number = grounds.ask(who, idempotent=idempotent, timeout_s=timeout_s, payload=b"1" * n)
        except Unreachable:
            assert grounds.service.active == 0
        except Overload:
            full = len(grounds.service._waiting) >= 4 or grounds.service._bytes + n > 40
            assert full
        else:
            self.asked[number] = who
            self.deadline[number] = grounds.now + timeout_s
            if idempotent:
                self.idempotent.add(number)

    @rule(at=st.integers(0, 20))
    def respond(self, at: int) -> None:
        held = [call.id for call in self.grounds.calls.by_id.values() if call.provider is not None]
        if held:
            number = held[at % len(held)]
            self.answered.add(number)
            self.grounds.respond(number)

    @rule(name=NAMES)
    def die(self, name: str) -> None:
        who = self.people[name]
        self.grounds.die(who)
        assert who not in self.grounds.service
        self.gone.append(who)
        self.people[name] = Someone(name)

    @rule(name=NAMES, room=st.booleans())
    def fill(self, name: str, room: bool) -> None:
        self.people[name].room = room

    @rule(seconds=st.sampled_from([0.4, 1.1, 6.0]))
    def wait(self, seconds: float) -> None:
        self.grounds.later(seconds)

    @invariant()
    def each_request_is_open_or_was_answered_once(self) -> None:
        open_ = self.grounds.calls.by_id
        failed = [number for who in self._everybody() for number, _, _ in who.failures]
        assert len(failed) == len(set(failed))
        assert self.answered.isdisjoint(failed)
        for number, who in self.asked.items():
            over = (number in self.answered) + (number in failed)
            if who in self.gone:
                assert over <= 1
            else:
                assert over + (number in open_) == 1

    @invariant()
    def nothing_is_open_after_its_time(self) -> None:
        for number in self.grounds.calls.by_id:
            assert self.deadline[number] > self.grounds.now

    @invariant()
    def only_what_is_idempotent_is_asked_twice_and_not_without_end(self) -> None:
        times: dict[str, int] = {}
        for who in self._everybody():
            for number in who.asked:
                times[number] = times.get(number, 0) + 1
        for number, count in times.items():
            assert count <= (2 if number in self.idempotent else 1)

    @invariant()
    def a_call_waits_or_is_in_one_pair_of_hands(self) -> None:
        service = self.grounds.service
        held = [n for provider in service._providers.values() for n in provider.calls]
        assert sorted([*held, *service._waiting]) == sorted(self.grounds.calls.by_id)
        for provider in service._providers.values():
            assert len(provider.calls) <= 2
            assert provider.calls or not provider.retired
        free = sum(
            not p.retired and p.stalled is None and len(p.calls) < 2
            for p in service._providers.values()
        )
        assert sum(map(len, service._roster._levels.values())) == free
        assert not free or not service._waiting

    @invariant()
    def what_is_kept_is_counted_and_bounded(self) -> None:
        service, calls = self.grounds.service, self.grounds.calls
        assert service._bytes == sum(len(call.payload) for call in calls.by_id.values()) <= 40
        owned = sum(map(len, calls.by_requester.values()))
        assert owned == sum(call.requester is not None for call in calls.by_id.values())
        assert service.active == sum(not p.retired for p in service._providers.values())
        stalled = sum(p.stalled is not None for p in service._providers.values())
        assert len(calls.deadlines) == len(calls.by_id) + stalled
        assert service.active or not service._waiting

    def _everybody(self) -> list[Any]:
        return [*self.gone, *self.people.values()]

    def teardown(self) -> None:
        """Whatever happened: in time everything is over."""
        self.grounds.later(10)
        self.grounds.later(10)
        assert not self.grounds.calls.by_id
        assert self.grounds.service._bytes == 0


TestServiceMachine = ServiceMachine.TestCase
TestServiceMachine.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
