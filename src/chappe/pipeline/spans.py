"""What happened to messages in queues.

A dead letter that was sent once more begins anew: a span is from when it was stored, or replayed,
until all groups that were handed it are done.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np

from chappe.pipeline.columns import NONE, Flags, Longs, changes
from chappe.pipeline.kinds import QUEUE_KINDS
from chappe.pipeline.trails import BITS, Trails, done_with


class Flows(NamedTuple):
    """What happened: to which message, what, when; how old it was when it was first handed out, and
    when it could have been."""

    of: Longs
    what: Longs
    time: Longs
    age: Longs
    frontier: Longs


class Happenings:
    """The hops of messages in queues; `ready` is when each message could first be handed out."""

    NAMES: ClassVar = (*QUEUE_KINDS, "finished")

    def __init__(self, trails: Trails, queued: Flags, ready: Longs) -> None:
        self._trails = trails
        self._hops = np.flatnonzero(queued[trails.of])
        self.of: Longs = trails.of[self._hops]
        self._time: Longs = trails.time[self._hops]
        self._ready: Longs = ready[self.of]

    def steps(self) -> Iterator[tuple[str, Longs]]:
        """How long each step took, by name; NONE of hops that are not its end.

        Handed out anew after it was replayed, a message waited since then; who is done had it since
        it was last handed out to them."""
        trails, hops = self._trails, self._hops
        acked = self._is("acked")
        yield "store", self._took(self._is("stored"), trails.came[hops], trails.at[hops])
        yield "wait", self._took(self._anew, self._begun, self._time)
        yield "work", self._took(acked, self._lent(), self._time)
        yield "done", self._took(acked, self._ready, self._time)

    def flows(self) -> Flows:
        """What happened, and with what each span ended."""
        names = {BITS[name]: n for n, name in enumerate(QUEUE_KINDS)}
        kind = self._trails.kind[self._hops]
        told = np.isin(kind, list(names))
        what = np.zeros(len(kind), np.int64)
        for bit, n in names.items():
            what[kind == bit] = n
        age = self._took(self._anew, self._begun, self._time)
        frontier = np.where(self._anew, self._ready, NONE)
        of, end = self._finished()
        finished = np.full(len(of), len(QUEUE_KINDS), np.int64)
        none = np.full(len(of), NONE, np.int64)
        return Flows(
            np.concatenate([self.of[told], of]),
            np.concatenate([what[told], finished]),
            np.concatenate([self._time[told], end]),
            np.concatenate([age[told], none]),
            np.concatenate([frontier[told], none]),
        )

    def _is(self, kind: str) -> Flags:
        found: Flags = self._trails.kind[self._hops] == BITS[kind]
        return found

    @cached_property
    def _anew(self) -> Flags:
        """Where it is handed out for the first time, or for the first time again."""
        first: Flags = self._trails.attempt[self._hops] == 1
        return self._is("lent") & first

    @cached_property
    def _begun(self) -> Longs:
        """When what each hop is of began: when it was ready, or replayed since."""
        trails = self._trails
        replayed = trails.latest(trails.any_of("replayed"))[self._hops]
        again = np.where(replayed >= 0, trails.time[replayed], -NONE)
        ready = np.where(self._ready < NONE, self._ready, -NONE)
        begun = np.maximum(again, ready)
        return np.where(begun > -NONE, begun, NONE)

    def _took(self, ends: Flags, start: Longs, end: Longs) -> Longs:
        known = ends & (start < NONE) & (end < NONE)
        return np.where(known, np.maximum(end - start, 0), NONE)

    def _lent(self) -> Longs:
        """When each hop's group was last handed the message with that attempt."""
        trails, hops = self._trails, self._hops
        order = np.lexsort((trails.attempt[hops], trails.group[hops], self.of))
        parts = [part[order] for part in (self.of, trails.group[hops], trails.attempt[hops])]
        begins = changes(*parts)
        place = np.arange(len(order), dtype=np.int64)
        last = np.maximum.accumulate(np.where(self._is("lent")[order], place, -1))
        first = np.maximum.accumulate(np.where(begins, place, 0))
        found = np.full(len(order), NONE, np.int64)
        found[order] = np.where(last >= first, self._time[order][last], NONE)
        return found

    def _finished(self) -> tuple[Longs, Longs]:
        """Spans that ended, and when: a group is done first when it acknowledges a message or it
        dies; all groups that were handed it are."""
        trails, hops = self._trails, self._hops
        if not len(hops):
            return hops, hops
        span: Longs = np.cumsum(self._is("replayed"), dtype=np.int64)
        begins = changes(self.of, span)
        spans = np.cumsum(begins) - 1
        group = trails.group[hops]
        order = np.lexsort((group, spans))
        firsts = np.flatnonzero(changes(spans[order], group[order]))
        done = np.where(done_with(trails)[hops], self._time, NONE)
        done = np.minimum.reduceat(done[order], firsts)
        lent = np.logical_or.reduceat(self._is("lent")[order], firsts)
        # From groups to spans.
        owner = spans[order][firsts]
        starts = np.flatnonzero(changes(owner))
        waits = np.logical_or.reduceat(lent & (done == NONE), starts)
        last = np.maximum.reduceat(np.where(done == NONE, -1, done), starts)
        cancelled = np.where(self._is("cancelled"), self._time, NONE)
        cancelled = np.minimum.reduceat(cancelled, np.flatnonzero(begins))
        end = np.where(cancelled < NONE, cancelled, np.where(waits | (last < 0), NONE, last))
        known = end < NONE
        return self.of[begins][known], end[known]
