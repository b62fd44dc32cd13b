"""Stories of a queue's life: records in an order that can be, and what a state knows after them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
from hypothesis import strategies as st

from chappe.queues.options import QueueLimits, QueueOptions
from chappe.queues.progress import ranges_of
from chappe.queues.record import (
    DEAD_GROUP,
    DEAD_LANE,
    DELAY_GROUP,
    DELAY_LANE,
    Done,
    Made,
    Record,
    Registered,
    Stored,
    Tried,
    Unregistered,
)
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
