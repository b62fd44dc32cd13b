"""Apps: their secrets, limits, and how soon a change is seen."""

from __future__ import annotations

import pytest

from chappe.errors import BadRequest, ConfigError, Forbidden, StorageError, Throttled, Unreachable
from chappe.push.admin.apps import Apps
from chappe.push.admin.options import DeskOptions
from chappe.push.admin.rates import Rates
from chappe.push.app import Limits
from chappe.push.seal import Seal
from tests.push.desks import ENTROPY, SEAL, with_bench
from tests.push.recording import HandClock


def test_a_secret_is_shown_once_and_sealed_at_rest():  # P10
    async def main(bench):
        app, secret = await bench.desk.apps.create("shop", open=False, limits=Limits())
        stored = (await bench.states.meta.apps([app.key]))[app.key]
        assert secret.encode() not in stored.sealed_secret
        assert bench.desk.apps.secret_of(stored) == secret
        assert len(secret) >= 43
        other = Apps(bench.states.meta, Seal(b"k" * 32, ENTROPY), bench.clock, ENTROPY)
        with pytest.raises(StorageError):
            other.secret_of(stored)

    with_bench(main)


def test_names_are_the_hubs_and_are_taken_once():
    async def main(bench):
        await bench.app("shop")
        with pytest.raises(BadRequest, match="name"):
            await bench.app("shop")
        with pytest.raises(BadRequest):
            await bench.app("Not A Name")
        with pytest.raises(BadRequest, match=r"limits\.devices_max"):
            await bench.app("other", devices_max=-1)

    with_bench(main)


def test_a_rotated_secret_takes_the_place_of_the_old_one():
    async def main(bench):
        app, before = await bench.desk.apps.create("shop", open=False, limits=Limits())
        after = await bench.desk.apps.rotate(app.key)
        now = await bench.desk.apps.find(app.key)
        assert bench.desk.apps.secret_of(now) == after != before

    with_bench(main)


def test_what_is_not_named_in_a_change_stays():
    async def main(bench):
        app = await bench.app(sends_per_s=5)
        await bench.desk.apps.change(app.key, enabled=False)
        changed = await bench.desk.apps.find(app.key)
        assert (changed.open, changed.enabled, changed.limits.sends_per_s) == (True, False, 5)
        with pytest.raises(Forbidden, match="switched off"):
            await bench.desk.apps.usable(app.key)
        await bench.desk.apps.remove(app.key)
        for asked in (bench.desk.apps.find, bench.desk.apps.remove, bench.desk.apps.rotate):
            with pytest.raises(Unreachable):
                await asked(app.key)

    with_bench(main)


def test_another_process_sees_a_change_within_a_second():
    async def main(bench):
        app = await bench.app()
        other = Apps(bench.states.meta, SEAL, bench.clock, ENTROPY)
        assert (await other.find(app.key)).enabled
        await bench.desk.apps.change(app.key, enabled=False)
        assert (await other.find(app.key)).enabled, "asked for a moment ago"
        assert not (await bench.desk.apps.find(app.key)).enabled
        bench.clock.pass_s(1.0)
        assert not (await other.find(app.key)).enabled

    with_bench(main)


def test_apps_are_listed_by_page():
    async def main(bench):
        made = {(await bench.app(f"app-{n}")).key for n in range(5)}
        first = await bench.desk.apps.page("", 3)
        rest = await bench.desk.apps.page(first[-1].key, 3)
        assert [len(first), len(rest)] == [3, 2]
        assert {app.key for app in (*first, *rest)} == made

    with_bench(main)


def test_a_rate_lets_a_seconds_worth_through_and_says_when_to_come_back():
    clock = HandClock()
    rates = Rates(clock)
    for _ in range(3):
        rates.take("a", 3)
    with pytest.raises(Throttled) as refused:
        rates.take("a", 3)
    assert refused.value.retry_after_s == 1
    rates.take("b", 3)
    rates.take("a", 0)
    clock.pass_s(1)
    rates.take("a", 3, cost=1_000)
    with pytest.raises(Throttled):
        rates.take("a", 3)


@pytest.mark.parametrize("name", ["targets_max", "batch", "token_life_s"])
def test_an_option_that_makes_no_sense_is_named(name):
    with pytest.raises(ConfigError, match=rf"push\.desk\.{name}"):
        DeskOptions(**{name: 0})


def test_a_slow_rate_is_waited_for_as_long_as_it_takes():
    clock = HandClock()
    rates = Rates(clock)
    rates.take("a", 0.1)
    with pytest.raises(Throttled) as refused:
        rates.take("a", 0.1)
    assert 1 <= refused.value.retry_after_s <= 10
