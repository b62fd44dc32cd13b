"""How often one address may connect."""

from __future__ import annotations

from chappe.edge import door
from chappe.edge.door import Door


class StillClock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def wall_ms(self) -> int:
        return int(self.now_s * 1000)

    def monotonic(self) -> float:
        return self.now_s


def test_an_address_comes_in_so_often_and_again_after_a_while() -> None:
    clock = StillClock()
    entry = Door(2, clock)
    assert [entry.allow("192.0.2.1") for _ in range(3)] == [True, True, False]
    clock.now_s += 0.5
    assert [entry.allow("192.0.2.1") for _ in range(2)] == [True, False]


def test_one_address_does_not_use_up_anothers_turns() -> None:
    entry = Door(1, StillClock())
    assert entry.allow("192.0.2.1")
    assert not entry.allow("192.0.2.1")
    assert entry.allow("192.0.2.2")


def test_without_a_rate_everybody_comes_in() -> None:
    entry = Door(0, StillClock())
    assert all(entry.allow("192.0.2.1") for _ in range(10_000))


def test_only_so_many_addresses_are_remembered_the_longest_unseen_forgotten_first() -> None:
    entry = Door(1, StillClock())
    assert entry.allow("first")
    for number in range(door._ADDRESSES_MAX):
        entry.allow(str(number))
    assert len(entry._buckets) == door._ADDRESSES_MAX
    assert entry.allow("first")  # forgotten, so it may come again
