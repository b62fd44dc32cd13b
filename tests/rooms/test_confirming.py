"""An entry is confirmed when all that have to have noted it, and one at least."""

from __future__ import annotations

from chappe.rooms.confirming import PENDING_S, Confirming, Done, together
from tests.rooms.rig import card, endpoint

NOW = 1000.0
TO = endpoint(9)
CARD = card(9, epoch=4)


def expect(confirming: Confirming, seq: int, *whom: int, now: float = NOW) -> Done | None:
    return confirming.expect(CARD, seq, whom, TO, now)


def note(confirming: Confirming, who: int, *seqs: int) -> list[Done]:
    return confirming.note(who, "g9", 4, seqs)


def test_all_that_are_awaited_have_to_note_it() -> None:
    confirming = Confirming(least=1)
    assert expect(confirming, 1, 5, 6) is None
    assert note(confirming, 5, 1) == []
    assert note(confirming, 6, 1) == [Done(TO, "g9", 4, [1], 2)]
    assert len(confirming) == 0


def test_nobody_is_not_enough() -> None:
    confirming = Confirming(least=1)
    assert expect(confirming, 1) is None
    # One that nobody waited for, as it only makes ready.
    assert note(confirming, 7, 1) == [Done(TO, "g9", 4, [1], 1)]


def test_for_another_router_nobody_is_enough() -> None:  # R12
    assert expect(Confirming(least=0), 1) == Done(TO, "g9", 4, [1], 0)


def test_who_notes_it_twice_counts_once() -> None:
    confirming = Confirming(least=1)
    expect(confirming, 1, 5, 6)
    note(confirming, 5, 1)
    assert note(confirming, 5, 1) == []
    assert note(confirming, 6, 1)[0].brokers == 2


def test_what_was_noted_of_another_gateway_epoch_or_sequence_says_nothing() -> None:
    confirming = Confirming(least=1)
    expect(confirming, 1, 5)
    assert confirming.note(5, "g8", 4, [1]) == []
    assert confirming.note(5, "g9", 3, [1]) == []
    assert confirming.note(5, "g9", 4, [2]) == []
    assert len(confirming) == 1


def test_told_again_only_those_are_awaited_that_live_now_and_have_not_noted_it() -> None:
    confirming = Confirming(least=1)
    expect(confirming, 1, 5, 6)
    note(confirming, 5, 1)
    assert expect(confirming, 1, 5, 7) is None
    assert note(confirming, 6, 1) == []
    assert note(confirming, 7, 1) == [Done(TO, "g9", 4, [1], 3)]
    expect(confirming, 2, 5, 6)
    note(confirming, 5, 2)
    assert expect(confirming, 2, 5) == Done(TO, "g9", 4, [2], 1)


def test_one_that_died_is_waited_for_no_longer() -> None:
    confirming = Confirming(least=1)
    expect(confirming, 1, 5, 6)
    expect(confirming, 2, 5, 6)
    expect(confirming, 3, 6)
    note(confirming, 5, 1, 2)
    assert confirming.forget({6}) == [Done(TO, "g9", 4, [1, 2], 1)]
    # Nobody at all has noted the third.
    assert len(confirming) == 1


def test_what_many_entries_have_in_common_is_said_once() -> None:
    confirming = Confirming(least=1)
    for seq in range(1, 6):
        expect(confirming, seq, 5)
    assert note(confirming, 5, 1, 2, 3, 4, 5) == [Done(TO, "g9", 4, [1, 2, 3, 4, 5], 1)]


def test_different_waiters_are_not_mixed_up() -> None:
    other = endpoint(8)
    done = together([Done(TO, "g9", 4, [1], 1), None, Done(other, "g9", 4, [2], 1)])
    assert done == [Done(TO, "g9", 4, [1], 1), Done(other, "g9", 4, [2], 1)]


def test_what_is_not_confirmed_in_time_is_forgotten() -> None:
    confirming = Confirming(least=1)
    expect(confirming, 1, 5)
    expect(confirming, 2, 5, now=NOW + 0.5)
    assert confirming.due == NOW + PENDING_S
    confirming.tick(NOW + PENDING_S)
    assert len(confirming) == 1
    assert note(confirming, 5, 1) == []
    assert note(confirming, 5, 2)


def test_no_more_waits_than_the_bound() -> None:
    confirming = Confirming(least=1, pending_max=3)
    for seq in range(10):
        expect(confirming, seq, 5)
    assert len(confirming) == 3
    assert note(confirming, 5, 0) == []
    assert note(confirming, 5, 9)
