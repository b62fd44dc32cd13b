"""State: the fold of a queue's records, told in a snapshot and back (Q11)."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from chappe.errors import StorageError
from chappe.queues.options import QueueLimits, QueueOptions
from chappe.queues.progress import Progress, ranges_of
from chappe.queues.record import (
    DEAD_GROUP,
    DEAD_LANE,
    DELAY_GROUP,
    DELAY_LANE,
    Death,
    Done,
    Made,
    MessageType,
    Record,
    Registered,
    Removed,
    Snapshot,
    Stored,
    Tried,
    Unregistered,
    decode_records,
    encode_record,
)
from chappe.queues.snapshot import restore, snapshot_of
from chappe.queues.state import QueueState

LIMITS = QueueLimits(producers_max=2, producer_window=3)
OPTIONS = QueueOptions(lanes=2)
MADE = Made(1, "default", "queue:jobs", OPTIONS, [4, 7])


def made(*records: Record) -> QueueState:
    state = QueueState(1, "default", "queue:jobs", OPTIONS)
    for record in (MADE, *records):
        state.apply(record, LIMITS)
    return state


def stored(lane: int, seq: int, **fields: Any) -> Stored:
    return Stored(1, lane, seq, 100 * lane + seq, 1, "user:a", b"12", **fields)


def told(state: QueueState) -> Any:
    """All that a state knows, to be compared."""
    groups = {
        name: (
            group.tags,
            group.headers,
            list(group.consumers),
            group.since_ms,
            group.expected,
            group.bytes,
            {
                lane: (at.mark, sorted(at.open), sorted(at.attempts.items()))
                for lane, at in group.progress.items()
                if at.mark or at.open
            },
        )
        for name, group in state.groups.items()
    }
    producers = [(name, list(seen.items())) for name, seen in state.producers.items()]
    return (
        state.options,
        state.heads,
        state.lanes,
        state.key_lanes,
        groups,
        state.bytes,
        state.delayed,
        state.delayed_seqs,
        producers,
        [(state.low(lane), state.load(lane)) for lane in state.lanes],
        state.depth(),
        state.waiting_bytes(),
    )


class ProgressMachine(RuleBasedStateMachine):
    """A progress against a plain set of what is done."""

    def __init__(self) -> None:
        super().__init__()
        self.progress = Progress()
        self.mark = 0
        self.done: set[int] = set()

    @rule(mark=st.integers(1, 12))
    def advance(self, mark: int) -> None:
        self.progress.advance(mark)
        self.mark = max(self.mark, mark)

    @rule(first=st.integers(1, 12), count=st.integers(1, 3))
    def finish(self, first: int, count: int) -> None:
        last = first + count - 1
        self.progress.finish(first, last)
        self.mark = max(self.mark, last)
        self.done.update(range(first, last + 1))

    @rule(seq=st.integers(1, 12), attempts=st.integers(2, 16))
    def attempt(self, seq: int, attempts: int) -> None:
        if seq in self.progress.open:
            self.progress.attempts[seq] = attempts

    @invariant()
    def it_knows_what_is_done(self) -> None:
        progress = self.progress
        assert progress.mark == self.mark
        for seq in range(1, 20):
            assert progress.is_done(seq) == (seq in self.done)
        low = 0
        while low + 1 in self.done:
            low += 1
        assert progress.low == (low if progress.open else progress.mark)
        assert progress.lag(20) == 20 - len(self.done)
        assert progress.attempts.keys() <= progress.open


TestProgress = ProgressMachine.TestCase
TestProgress.settings = settings(max_examples=100, stateful_step_count=25, deadline=None)


class Story:
    """Makes records that can follow each other."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.heads = {4: 0, 7: 0, DEAD_LANE: 0, DELAY_LANE: 0}
        # Groups that came; only they are given messages.
        self.there: set[str] = set()

    def records(self) -> list[Record]:
        return [self._record() for _ in range(self.random.randrange(30))]

    def _record(self) -> Record:
        random = self.random
        name, lane = random.choice(["", "a", "b"]), random.choice([4, 7])
        makers: list[Callable[[], Record]] = [
            lambda: self._stored(random.choice([lane, lane, DEAD_LANE, DELAY_LANE])),
            lambda: self._registered(name),
            lambda: self._unregistered(name, random.choice(["", "x"])),
            lambda: self._tried(name, lane),
            lambda: self._done(
                *random.choice([(DEAD_LANE, DEAD_GROUP), (DELAY_LANE, DELAY_GROUP)])
            ),
            lambda: self._done(lane, name),
            lambda: msgspec.structs.replace(MADE, options=QueueOptions(lanes=random.randint(1, 3))),
        ]
        return random.choices(makers, [8, 3, 1, 3, 2, 4, 1])[0]()

    def _registered(self, name: str) -> Registered:
        expected, new = self.random.choice([(False, False), (True, False), (False, True)])
        if not expected:
            self.there.add(name)
        tags = None if expected else self.random.choice([None, ["t"]])
        consumer = "" if expected else self.random.choice(["", "x", "y"])
        return Registered(1, name, consumer, tags, None, 5, expected, new)

    def _unregistered(self, name: str, consumer: str) -> Unregistered:
        if not consumer:
            self.there.discard(name)
        return Unregistered(1, name, consumer)

    def _tried(self, name: str, lane: int) -> Record:
        if name not in self.there:
            return self._registered(name)
        attempts = self.random.choice([0, 2, 3])
        return Tried(1, lane, name, self.random.randint(1, 30), attempts)

    def _stored(self, lane: int) -> Stored:
        self.heads[lane] += 1
        fields: dict[str, Any] = {}
        if lane == DELAY_LANE:
            fields["due_ms"] = 9
        elif lane > 0:
            fields["consumers"] = self.random.choice([None, None, ["a"], ["a", "b"]])
            fields["producer"] = self.random.choice([None, "p", "q", "r"])
            fields["producer_seq"] = self.random.randrange(10)
        return stored(lane, self.heads[lane], **fields)

    def _done(self, lane: int, group: str) -> Record:
        head = self.heads[lane]
        if not head:
            return self._stored(lane)
        seqs = sorted({self.random.randint(1, head) for _ in range(4)})
        return Done(1, lane, group, ranges_of(seqs), 2 * len(seqs))


SEEDS = st.integers(0, 1 << 32)


@settings(max_examples=300, deadline=None)
@given(SEEDS)
def test_a_snapshot_anywhere_stands_for_the_records_before_it(seed: int) -> None:
    story = Story(seed)
    records = story.records()
    cut = story.random.randint(0, len(records))
    whole = made(*records)
    snapshot = snapshot_of(made(*records[:cut]))
    (read,) = decode_records(encode_record(snapshot), 1)
    assert isinstance(read, Snapshot)
    state = restore(read)
    for record in records[cut:]:
        state.apply(record, LIMITS)
    assert told(state) == told(whole)


@settings(max_examples=300, deadline=None)
@given(SEEDS)
def test_figures_stay_within_what_there_is(seed: int) -> None:
    state = made()
    for record in Story(seed).records():
        state.apply(record, LIMITS)
        total = sum(state.heads[lane] for lane in state.lanes)
        assert 0 <= state.depth() <= total
        assert 0 <= state.waiting_bytes() <= 2 * total
        assert state.depth() <= sum(state.load(lane) for lane in state.lanes)
        for lane in state.lanes:
            assert 0 <= state.load(lane) <= state.heads[lane]
            assert 0 <= state.low(lane) <= state.heads[lane]
        assert len(state.producers) <= LIMITS.producers_max
        assert all(len(seen) <= LIMITS.producer_window for seen in state.producers.values())
        assert state.delayed.keys() == set(state.delayed_seqs.values())


@settings(max_examples=300, deadline=None)
@given(SEEDS)
def test_to_take_a_message_or_its_end_twice_is_to_take_it_once(seed: int) -> None:
    state, twice = made(), made()
    for record in Story(seed).records():
        state.apply(record, LIMITS)
        for _ in range(2 if isinstance(record, Stored | Done | Tried | Made) else 1):
            twice.apply(record, LIMITS)
    assert told(twice) == told(state)


def test_a_group_begins_with_all_that_is_there_or_with_what_comes() -> None:  # Q8
    state = made(stored(4, 1), stored(4, 2))
    state.apply(Registered(1, "all", "", None, None, 5), LIMITS)
    state.apply(Registered(1, "new", "", None, None, 5, new=True), LIMITS)
    state.apply(stored(4, 3), LIMITS)
    lags = {group.name: group.at(4).lag(3) for group in state.readers()}
    assert lags == {"all": 3, "new": 1}
    assert (state.groups["all"].bytes, state.groups["new"].bytes) == (6, 2)


def test_a_group_that_comes_later_begins_where_the_slowest_is() -> None:
    state = made(Registered(1, "a", ""), stored(4, 1), stored(4, 2), Done(1, 4, "a", [1, 1], 2))
    state.apply(Registered(1, "b", ""), LIMITS)
    assert state.groups["b"].at(4).lag(2) == 1
    assert state.groups["b"].bytes == 2


def test_what_the_last_group_was_done_with_does_not_come_back_when_it_goes() -> None:
    state = made(
        Registered(1, "a", ""),
        stored(4, 1),
        stored(4, 2),
        stored(7, 1),
        Done(1, 4, "a", [1, 2], 4),
        Unregistered(1, "a"),
    )
    assert (state.depth(), state.load(4), state.load(7), state.low(4)) == (1, 0, 1, 2)
    assert state.waiting_bytes() == 2
    state.apply(Registered(1, "b", ""), LIMITS)
    assert (state.depth(), state.groups["b"].at(4).lag(2)) == (1, 0)
    assert state.waiting_bytes() == 2


def test_a_consumer_that_is_awaited_does_not_stand_for_those_who_are_not_there() -> None:  # Q6
    state = made(
        stored(4, 1),
        Registered(1, "x", "", None, None, 5, expected=True),
        stored(4, 2, consumers=["x"]),
        stored(4, 3),
    )
    assert (state.depth(), state.load(4), state.low(4), state.waiting_bytes()) == (3, 3, 0, 6)
    state.apply(Registered(1, "a", ""), LIMITS)
    assert state.groups["a"].at(4).lag(3) == 3
    assert state.groups["a"].bytes == 6
    state.apply(Unregistered(1, "a"), LIMITS)
    assert (state.depth(), state.waiting_bytes(), state.low(4)) == (3, 6, 0)


def test_what_nobody_came_for_in_time_is_counted_no_more() -> None:  # Q6
    state = made(Registered(1, "x", "", None, None, 5, expected=True))
    for seq in range(1, 4):
        state.apply(stored(4, seq, consumers=["x"]), LIMITS)
    state.apply(Done(1, 4, "x", [1, 2], 4), LIMITS)
    assert (state.depth(), state.waiting_bytes()) == (1, 2)
    state.apply(Done(1, 4, "x", [3, 3], 2), LIMITS)
    state.apply(Unregistered(1, "x"), LIMITS)
    assert (state.depth(), state.waiting_bytes(), state.low(4)) == (0, 0, 3)


def test_a_group_that_has_nothing_left_holds_no_bytes_whatever_was_lost() -> None:
    state = made(Registered(1, "a", ""), stored(4, 1), stored(4, 2))
    state.apply(Done(1, 4, "a", [1, 2], 0), LIMITS)  # damaged: nobody knows how large
    assert state.waiting_bytes() == 0


def test_keys_stay_in_their_lanes_while_something_waits() -> None:  # Q4
    state = made(stored(4, 1))
    assert state.key_lanes == 2
    state.apply(msgspec.structs.replace(MADE, lanes=[4, 7, 9]), LIMITS)
    assert (state.lanes, state.key_lanes) == ([4, 7, 9], 2)
    empty = made()
    empty.apply(msgspec.structs.replace(MADE, lanes=[4, 7, 9]), LIMITS)
    assert empty.key_lanes == 3


def test_producers_numbers_that_come_out_of_order_are_forgotten_the_lowest_first() -> None:  # Q5
    state = made()
    for at, seq in enumerate([2, 3, 1, 4], 1):
        state.apply(stored(4, at, producer="p", producer_seq=seq), LIMITS)
    assert list(state.producers["p"]) == [2, 3, 4]


def test_the_producer_that_was_silent_longest_is_forgotten() -> None:  # Q5
    state = made()
    for at, name in enumerate(["p", "q", "p", "r"], 1):
        state.apply(stored(4, at, producer=name, producer_seq=at), LIMITS)
    assert list(state.producers) == ["p", "r"]


@pytest.mark.parametrize("raw", [b"\xc1", b"\x90", msgspec.msgpack.encode([1] * 7)])
def test_a_snapshot_that_cannot_be_read_says_so(raw: bytes) -> None:
    snapshot = Snapshot(1, "default", "queue:jobs", OPTIONS, msgspec.Raw(raw))
    with pytest.raises(StorageError, match="queue:jobs"):
        restore(snapshot)


def test_records_that_are_no_part_of_a_queues_life_are_refused() -> None:
    with pytest.raises(StorageError, match="Removed"):
        made(Removed(1))


def test_every_record_comes_back_from_its_bytes() -> None:  # Q11
    death = Death("too often", "g", 16, 7, 4, 1)
    records: list[Record] = [
        MADE,
        Removed(1),
        stored(4, 1, key="k", headers={"a": "b"}, tags=["t"], consumers=["x"], death=death),
        Done(1, 4, "g", [1, 3, 7, 7], 9),
        Tried(1, 4, "g", 5, 2),
        Registered(1, "g", "x", ["t"], {"a": "b"}, 5, expected=False, new=True),
        Unregistered(1, "g", "x"),
    ]
    body = b"".join(encode_record(record) for record in records)
    assert decode_records(body, len(records)) == records
    with pytest.raises(StorageError):
        decode_records(body[:-1], len(records))


def test_an_unknown_type_of_message_is_one_that_expects_a_reply() -> None:  # Q13
    assert [int(MessageType(kind)) for kind in (0, 1, 2, 3, 4)] == [0, 1, 2, 3, 4]
    assert [MessageType(kind) for kind in (5, -1, 99)] == [MessageType.REPLY_EXPECTED] * 3
