"""The machine's clocks: one that may step, one that may not."""

import time

from chappe.clock import SystemClock


def test_the_wall_clock_is_the_time_of_day_in_whole_milliseconds():
    before = time.time_ns() // 1_000_000
    now_ms = SystemClock().wall_ms()
    after = time.time_ns() // 1_000_000
    assert isinstance(now_ms, int)
    assert before <= now_ms <= after


def test_the_monotonic_clock_never_runs_backwards():
    clock = SystemClock()
    times = [clock.monotonic() for _ in range(1000)]
    assert times == sorted(times)


def test_the_monotonic_clock_is_not_the_wall_clock(monkeypatch):
    clock = SystemClock()
    before = clock.monotonic()
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    assert clock.wall_ms() == 0
    assert clock.monotonic() >= before
