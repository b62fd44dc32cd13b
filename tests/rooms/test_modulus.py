"""The modulus: old and new number of partitions, until all senders go by the new one (R8)."""

from __future__ import annotations

import pytest

from chappe.rooms.modulus import SENDERS_MAX, Modulus


def modulus(partition: int) -> Modulus:
    return Modulus(partition, confirm_s=10.0, grace_s=1.0)


@pytest.fixture
def old() -> Modulus:
    """One of partition 1 of 2, settled, with proxies 1 and 2."""
    old = modulus(1)
    old.see(2, [1, 2], 0.0)
    for sender in (1, 2):
        old.hear(sender, 2, 0.0)
    assert not old.settle(0.0)
    assert old.settle(1.0)
    assert (old.number, old.settled) == (2, True)
    return old


def test_before_it_knows_anything_it_keeps_all():
    assert modulus(3).keeps(8)


def test_a_new_partition_keeps_what_its_sibling_has_until_the_switch():  # R8
    new = modulus(3)
    new.see(2, [1], 0.0)
    assert new.number == 2
    assert [room for room in range(8) if new.keeps(room)] == [1, 3, 5, 7]
    assert not new.settle(100.0)


def test_after_the_switch_both_moduli_are_served_until_every_proxy_has_confirmed(old: Modulus):
    old.see(4, [1, 2], 100.0)
    assert old.number == 2
    assert not old.settled
    old.hear(1, 4, 101.0)
    old.hear(2, 2, 119.0)
    assert not old.settle(120.0)
    old.hear(2, 4, 120.5)
    assert not old.settle(121.0)
    assert old.settle(122.0)
    assert [room for room in range(8) if old.keeps(room)] == [1, 5]


def test_what_was_sent_before_the_last_confirmation_still_comes_to_who_has_its_room(old: Modulus):
    old.see(4, [1, 2], 100.0)
    for sender in (1, 2):
        old.hear(sender, 4, 101.0)
    assert not old.settle(101.0)
    assert not old.settle(101.9)
    assert old.settle(102.0)


def test_a_proxy_that_is_silent_for_long_does_not_count(old: Modulus):  # R8: or timed out
    old.see(4, [1, 2], 100.0)
    old.hear(1, 4, 101.0)
    old.hear(2, 2, 103.0)
    assert not old.settle(112.9)
    assert not old.settle(113.0)
    assert old.settle(114.0)


def test_a_proxy_that_speaks_but_goes_by_the_old_number_is_waited_for(old: Modulus):
    old.see(4, [1, 2], 100.0)
    for now in range(101, 200):
        old.hear(1, 4, now)
        old.hear(2, 2, now)
        assert not old.settle(now)


def test_one_that_is_registered_but_never_heard_is_waited_for(old: Modulus):
    old.see(4, [1, 2, 3], 100.0)
    for sender in (1, 2):
        old.hear(sender, 4, 101.0)
    assert not old.settle(109.0)
    assert not old.settle(110.0)
    assert old.settle(111.0)


def test_one_that_lost_its_registration_is_waited_for_as_long_as_it_speaks(old: Modulus):  # R4
    old.hear(9, 2, 100.0)
    old.see(4, [1], 100.0)
    old.hear(1, 4, 100.0)
    assert not old.settle(105.0)
    assert not old.settle(110.0)
    assert old.settle(111.0)


def test_an_old_number_that_comes_while_all_seemed_agreed_is_heard(old: Modulus):
    old.see(4, [1, 2], 100.0)
    for sender in (1, 2):
        old.hear(sender, 4, 101.0)
    assert not old.settle(101.5)
    old.hear(3, 2, 101.7)
    assert not old.settle(102.6)
    old.hear(3, 4, 103.0)
    assert not old.settle(103.0)
    assert old.settle(104.0)


def test_one_that_starts_right_after_a_switch_has_both_halves_at_first():
    late = modulus(1)
    late.see(4, [1, 2], 0.0)
    assert late.number == 2
    late.hear(1, 4, 0.2)
    late.hear(2, 2, 0.2)
    assert not late.settle(5.0)
    late.hear(2, 4, 5.0)
    assert not late.settle(5.0)
    assert late.settle(6.0)
    assert late.number == 4


def test_with_one_partition_there_is_nothing_to_wait_for():
    only = modulus(0)
    assert not only.see(1, [1], 0.0)
    assert (only.number, only.settled) == (1, True)


def test_partitions_never_become_fewer(old: Modulus):
    assert not old.see(1, [1, 2], 100.0)
    assert not old.see(0, [1, 2], 100.0)
    assert (old.number, old.partitions, old.settled) == (2, 2, True)


def test_what_senders_say_is_kept_within_a_bound(old: Modulus):
    for sender in range(SENDERS_MAX + 100):
        old.hear(sender, 2, 1.0)
    assert len(old._said) == SENDERS_MAX
