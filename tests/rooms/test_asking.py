"""How many are in a room, and who (R1): asked once more when nothing comes back, answered once."""

from __future__ import annotations

import math

import pytest

from chappe.errors import Overload, Unreachable
from chappe.rooms.asking import ASKS_MAX, Asking
from chappe.wire.rooms import ANY_PARTITION, Count, Counted, Here
from tests.rooms.rig import APP, KeptPost, card, endpoint, seats

NOW = 1000.0


class Told:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, list[str] | None]] = []

    def __call__(self, members: int, who: list[str] | None) -> None:
        self.answers.append((members, who))


def asking(*proxies: int) -> tuple[Asking, KeptPost, Told]:
    post = KeptPost()
    ask = Asking(card(9), post)
    ask.see(seats(*proxies))
    return ask, post, Told()


def test_a_question_goes_to_a_proxy_and_says_who_asks() -> None:
    ask, post, told = asking(1)
    ask.ask(APP, "7", 5, NOW, told)
    assert post.said == [(endpoint(1), Count(APP, "7", 7, 1, 5, card(9), ANY_PARTITION))]
    assert told.answers == []


def test_how_many_is_told_once_a_broker_says_it() -> None:
    ask, _, told = asking(1)
    ask.ask(APP, "7", 0, NOW, told)
    ask.counted(Counted(1, 12, 3, 0))
    ask.counted(Counted(1, 13, 3, 0))
    assert told.answers == [(12, None)]


def test_who_is_told_once_all_gateways_that_were_asked_have_said_it() -> None:
    ask, _, told = asking(1)
    ask.ask(APP, "7", 5, NOW, told)
    ask.here(Here(1, "g2", ["user:bob"]))  # faster than the broker's word
    ask.counted(Counted(1, 3, 2, 2))
    ask.here(Here(1, "g2", ["user:bob"]))  # a copy
    ask.counted(Counted(1, 9, 3, 3))  # another broker, asked later
    assert told.answers == []
    ask.here(Here(1, "g1", ["user:ann", "user:ann"]))
    assert told.answers[0][0] == 3
    assert sorted(told.answers[0][1] or ()) == ["user:ann", "user:ann", "user:bob"]


def test_of_too_many_nobody_is_named() -> None:
    ask, _, told = asking(1)
    ask.ask(APP, "7", 5, NOW, told)
    ask.counted(Counted(1, 600, 3, 0))
    assert told.answers == [(600, None)]


def test_in_an_empty_room_there_is_nobody() -> None:
    ask, _, told = asking(1)
    ask.ask(APP, "7", 5, NOW, told)
    ask.counted(Counted(1, 0, 0, 0))
    assert told.answers == [(0, [])]


def test_without_an_answer_another_proxy_is_asked_and_then_nobody() -> None:
    ask, post, told = asking(1, 2)
    ask.ask(APP, "7", 0, NOW, told)
    while ask.due < NOW + 2:
        ask.tick(ask.due)
    assert {to for to, _ in post.said} == {endpoint(1), endpoint(2)}
    assert 2 < len(post.said) < 6
    assert told.answers == [(-1, None)]
    ask.counted(Counted(1, 5, 1, 0))
    assert told.answers == [(-1, None)]


def test_how_many_is_told_though_some_did_not_say_who() -> None:
    ask, _, told = asking(1)
    ask.ask(APP, "7", 5, NOW, told)
    ask.counted(Counted(1, 3, 2, 2))
    ask.here(Here(1, "g1", ["user:ann"]))
    ask.tick(NOW + 0.9)
    assert told.answers == []
    while ask.due < NOW + 2:
        ask.tick(ask.due)
    assert told.answers == [(3, None)]


def test_where_no_proxy_is_known_a_question_is_refused_and_says_so() -> None:
    ask, post, told = asking()
    with pytest.raises(Unreachable, match="no proxy of rooms is known"):
        ask.ask(APP, "7", 0, NOW, told)
    assert told.answers == []
    assert post.said == []
    assert ask.due == math.inf


def test_no_more_questions_wait_than_the_bound_and_the_next_is_told_which() -> None:
    ask, post, told = asking(1)
    for _ in range(ASKS_MAX):
        ask.ask(APP, "7", 0, NOW, told)
    with pytest.raises(Overload, match=f"{ASKS_MAX} questions about rooms wait"):
        ask.ask(APP, "7", 0, NOW, told)
    assert told.answers == []
    assert len(post.said) == ASKS_MAX
    # One that is answered makes place.
    ask.counted(Counted(1, 12, 3, 0))
    ask.ask(APP, "7", 0, NOW, told)
    assert told.answers == [(12, None)]


def test_proxies_that_are_known_to_answer_are_asked_before_others() -> None:
    ask, post, told = asking(1, 2, 3)
    ask.living = lambda proxies: [seat for seat in proxies if seat.id == 2]
    for _ in range(4):
        ask.ask(APP, "7", 0, NOW, told)
    assert {to for to, _ in post.said} == {endpoint(2)}
    ask.living = lambda proxies: []
    for _ in range(3):
        ask.ask(APP, "7", 0, NOW, told)
    assert {to for to, _ in post.said} == {endpoint(1), endpoint(2), endpoint(3)}
