"""Buckets and what sessions are given out of them, on a clock that tests move."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.errors import BadRequest, Overload, RequestError
from chappe.hub.allowance import Allowances
from chappe.hub.app import App
from chappe.hub.bucket import Bucket
from chappe.hub.options import Quota, Rate
from tests.hub.rig import ManualClock

# Steps of whole 64ths of a second, so that sums are exact.
STEPS = st.integers(0, 256).map(lambda sixtyfourths: sixtyfourths / 64)


@given(st.integers(1, 10_000), st.lists(st.tuples(STEPS, st.integers(1, 20_000)), max_size=50))
def test_a_bucket_never_gives_more_than_its_rate_and_a_second_ahead(
    per_s: int, steps: list[tuple[float, int]]
) -> None:
    bucket, now, taken = Bucket(per_s, 0.0), 0.0, 0
    for wait, wanted in steps:
        now += wait
        level = bucket.level(now)
        assert 0 <= level <= per_s
        if wanted <= level:
            bucket.take(wanted)
            taken += wanted
        assert taken <= per_s * (1 + now) + 1e-6


def test_a_bucket_fills_with_time_and_no_further_than_a_second() -> None:
    bucket = Bucket(100, 0.0)
    bucket.take(bucket.level(0.0))
    assert bucket.level(0.0) == 0
    assert bucket.level(0.25) == 25
    assert bucket.level(60.0) == 100
    bucket.give_back(50)
    assert bucket.level(60.0) == 100


def app_of(quota: Quota, clock: ManualClock) -> App:
    return App("default", quota, clock.monotonic())


def spend_all(allowances: Allowances, size: int = 1, tries: int = 10_000) -> int:
    """How many messages go through before the first is refused."""
    for done in range(tries):
        try:
            allowances.spend(size)
        except Overload:
            return done
    return tries


@pytest.mark.parametrize("per_s", [1, 3, 99, 100, 250, 1000])
def test_a_session_sends_exactly_its_rate_at_once_and_again_a_second_later(per_s: int) -> None:
    clock = ManualClock()
    allowances = Allowances(Rate(messages_per_s=per_s), app_of(Quota(), clock), clock)
    assert allowances.bounded
    assert spend_all(allowances) == per_s
    assert spend_all(allowances) == 0
    clock.now_s += 1
    assert spend_all(allowances) == per_s


def test_without_a_rate_nothing_is_bounded() -> None:
    clock = ManualClock()
    allowances = Allowances(Rate(), app_of(Quota(), clock), clock)
    assert not allowances.bounded
    assert spend_all(allowances) == 10_000


def test_bytes_are_bounded_by_themselves() -> None:
    clock = ManualClock()
    allowances = Allowances(Rate(bytes_per_s=1000), app_of(Quota(), clock), clock)
    assert spend_all(allowances, size=100) == 10
    with pytest.raises(Overload, match="bytes"):
        allowances.spend(100)


def test_the_sessions_of_an_app_share_its_quota() -> None:
    clock = ManualClock()
    app = app_of(Quota(messages_per_s=500), clock)
    sessions = [Allowances(Rate(), app, clock) for _ in range(3)]
    assert sum(spend_all(session) for session in sessions) == 500
    other = Allowances(Rate(), app_of(Quota(messages_per_s=500), clock), clock)
    assert spend_all(other) == 500


def test_a_closing_session_gives_back_what_it_did_not_use() -> None:
    clock = ManualClock()
    app = app_of(Quota(messages_per_s=1000), clock)
    for _ in range(200):
        # Each is given a share of ten and uses one of them.
        session = Allowances(Rate(), app, clock)
        session.spend(1)
        session.give_back()
        session.give_back()
    assert spend_all(Allowances(Rate(), app, clock)) == 800


def test_a_refused_message_takes_nothing() -> None:
    clock = ManualClock()
    allowances = Allowances(Rate(bytes_per_s=1000), app_of(Quota(), clock), clock)
    allowances.spend(500)
    for _ in range(5):
        with pytest.raises(Overload):
            allowances.spend(600)
    allowances.spend(500)


def test_what_can_never_pass_is_refused_as_such() -> None:
    clock = ManualClock()
    allowances = Allowances(Rate(bytes_per_s=1000), app_of(Quota(), clock), clock)
    with pytest.raises(BadRequest, match="1001 bytes at once"):
        allowances.spend(1001)
    allowances.spend(1000)


@given(
    st.integers(1, 500),
    st.integers(1, 500),
    st.lists(st.tuples(STEPS, st.integers(0, 2), st.integers(1, 20)), max_size=60),
)
def test_no_order_of_sessions_gets_past_the_rate_or_the_quota(
    rate: int, quota: int, steps: list[tuple[float, int, int]]
) -> None:
    clock = ManualClock()
    app = app_of(Quota(messages_per_s=quota), clock)
    sessions = [Allowances(Rate(messages_per_s=rate), app, clock) for _ in range(3)]
    spent, start = [0, 0, 0], clock.now_s
    for wait, who, count in steps:
        clock.now_s += wait
        try:
            sessions[who].spend(0, count)
            spent[who] += count
        except RequestError:
            pass
        since = 1 + clock.now_s - start
        assert sum(spent) <= quota * since + 1e-6
        assert max(spent) <= rate * since + 1e-6
