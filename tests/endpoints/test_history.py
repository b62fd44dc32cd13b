"""A topic's history: numbered without a gap, bounded, honest about what is gone."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.endpoints.history import (
    MESSAGES_MAX,
    SECONDS_MAX,
    History,
    TopicOptions,
    newest,
)
from chappe.errors import BadRequest
from chappe.message import Message
from chappe.wire.encoding import JSON_ITEMS, STREAM


def message(n: int, ts_ms: int = 0, payload: bytes = b"1") -> Message:
    return Message(n, "user:x", "topic:t", ts_ms, payload)


@given(
    st.integers(1, 6),
    st.lists(st.tuples(st.integers(0, 400), st.binary(max_size=20)), max_size=25),
    st.integers(-1, 30),
    st.integers(0, 2000),
)
def test_what_came_since_a_place_is_what_a_list_of_all_would_say(
    most: int, added: list[tuple[int, bytes]], place: int, wait_ms: int
) -> None:
    history = History("e", TopicOptions(history=most, history_s=1.0))
    everything: list[Message] = []
    now_ms = 0
    for n, (pause_ms, payload) in enumerate(added):
        now_ms += pause_ms
        kept = history.add(message(n, now_ms, payload), now_ms / 1000)
        assert kept.offset == n + 1
        everything.append(kept)
    now_ms += wait_ms
    history.expire(now_ms / 1000)
    left = [one for one in everything[-most:] if one.ts_ms / 1000 >= now_ms / 1000 - 1]
    assert len(history) == len(left)
    assert history.offset == len(everything)
    # About 200 bytes each, beside what they carry.
    assert history.size_bytes == sum(len(one.payload) + 200 for one in left)
    whole, missed = history.since("e", place)
    if not 0 <= place <= len(everything):
        assert (whole, missed) == (False, [])
        return
    since = everything[place:]
    assert whole is (len(since) <= len(left))
    assert missed == (since if whole else left)


def test_what_is_as_old_as_it_may_be_is_kept_and_adding_lets_go_of_the_rest() -> None:
    history = History("e", TopicOptions(history=9, history_s=1.0))
    for ts_ms in (999, 1000, 2000):
        history.add(message(ts_ms, ts_ms), ts_ms / 1000)
    assert len(history) == 2
    history.expire(2)
    assert [one.ts_ms for one in history.since("e", 1)[1]] == [1000, 2000]


def test_a_publisher_whose_clock_is_wrong_makes_nothing_older_or_younger() -> None:
    history = History("e", TopicOptions(history=9, history_s=1.0))
    for now, ts_ms in ((10.0, 10_000), (10.5, 500_000), (10.6, 1)):
        history.add(message(1, ts_ms), now)
    assert len(history) == 3
    history.expire(11.55)
    assert [one.ts_ms for one in history.since("e", 0)[1]] == [1]


@given(st.lists(st.tuples(st.binary(max_size=300), st.booleans()), max_size=20))
def test_the_newest_that_fit_are_not_larger_than_that_in_any_encoding(
    payloads: list[tuple[bytes, bool]],
) -> None:
    messages = [
        Message(2**62, "user:x" * 9, "topic:t" * 9, 2**41, data if binary else b"7", binary, n + 1)
        for n, (data, binary) in enumerate(payloads)
    ]
    fitting = newest(messages, 2_000)
    assert fitting == messages[len(messages) - len(fitting) :]
    for encoding in (STREAM, JSON_ITEMS):
        assert sum(len(encoding.message(one)) for one in fitting) <= 2_000
    assert newest(messages, 10**6) == messages
    assert newest(messages, 0) == []


def test_without_a_place_nothing_was_missed_and_in_another_epoch_everything() -> None:
    history = History("e", TopicOptions(history=5))
    assert history.since(None, None) == (True, [])
    assert history.since("e", 0) == (True, [])
    history.add(message(1), 0)
    assert history.since(None, None) == (True, [])
    assert history.since("e", None) == (True, [])
    assert history.since("other", 0) == (False, [])
    assert history.since(None, 0) == (False, [])
    assert history.since("e", 1) == (True, [])
    assert history.since("e", 2) == (False, [])
    assert [one.id for one in history.since("e", 0)[1]] == [1]


def test_what_is_kept_is_the_message_with_its_number_and_nothing_else_changed() -> None:
    history = History("e", TopicOptions(history=5))
    before = Message(7, "user:x", "topic:t", 9, b"abc", True)
    after = history.add(before, 0)
    assert before.offset == 0
    assert (after.id, after.sender, after.to, after.ts_ms, after.payload, after.binary) == (
        7, "user:x", "topic:t", 9, b"abc", True,
    )  # fmt: skip
    assert history.since("e", 0)[1] == [after]


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"history": -1}, "history:"),
        ({"history": MESSAGES_MAX + 1}, "history:"),
        ({"history_s": -0.1}, "history_s:"),
        ({"history_s": SECONDS_MAX + 1}, "history_s:"),
        ({"history_s": math.nan}, "history_s:"),
    ],
)
def test_options_that_make_no_sense_are_refused_by_name(
    options: dict[str, float], field: str
) -> None:
    with pytest.raises(BadRequest, match=field):
        TopicOptions(**options)  # type: ignore[arg-type]


def test_the_bounds_themselves_are_allowed() -> None:
    TopicOptions(history=MESSAGES_MAX, history_s=SECONDS_MAX)
    TopicOptions(history=0, history_s=0)
