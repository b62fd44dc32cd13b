"""Steps: how long each step of messages took.

hop       role                 from, to
hub       origin relay last    a message came to a node; it left for sessions or other nodes
link      relay last           it left the node before; it came to this one
delivery  whole                it came to its first node; the last session's outbox had it
store     whole                it came to a queue's node; it was durable
wait      whole                it was durable and due, or replayed; a group was handed it first
work      whole                a consumer was handed it; its group was done
done      whole                it was durable and due; its group was done
answer    whole                a request came; it was answered well
arrival   whole                a note came to be sent; a device that was online acknowledged it

A note is durable when it is kept for all that it is sent to: of those, too, that is `store`.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from chappe.pipeline.columns import NONE, Flags, Longs
from chappe.pipeline.kinds import COMING
from chappe.pipeline.trails import Trails

HOPS = ("hub", "link", "delivery", "store", "wait", "work", "done", "answer", "arrival")
HOP = {name: n for n, name in enumerate(HOPS)}
ROLES = ("origin", "relay", "last", "whole")
_ORIGIN, _RELAY, _LAST, WHOLE = range(4)


class Steps(NamedTuple):
    """Of which messages, and how long each took; NONE where that is not known. A step may stand for
    so many: without a word, for one."""

    of: Longs
    hop: Longs
    role: Longs
    us: Longs
    n: Longs | None = None


class Ways:
    """The ways of messages that go from node to node."""

    def __init__(self, trails: Trails, carried: Flags) -> None:
        self._trails = trails
        # Which hops are of such messages.
        self._carried: Flags = carried[trails.of]

    @cached_property
    def came(self) -> Longs:
        """Hops at which a message came from another node."""
        trails = self._trails
        return np.flatnonzero(trails.any_of(*COMING) & trails.legs.came & self._carried)

    @cached_property
    def arrivals(self) -> Steps:
        """From node to node."""
        trails, hops = self._trails, self.came
        came = np.where(trails.came < NONE, trails.came + trails.shift, NONE)
        us = between(trails.legs.left()[hops], came[hops])
        return Steps(trails.of[hops], same(hops, HOP["link"]), self._role[hops], us)

    def stays(self) -> Steps:
        """Within nodes that passed a message on."""
        trails = self._trails
        hops = np.flatnonzero(trails.passes & self._carried)
        us = between(trails.came[hops], trails.at[hops])
        return Steps(trails.of[hops], same(hops, HOP["hub"]), self._role[hops], us)

    def handings(self) -> Longs:
        """Which of all handings are of such messages."""
        handings = self._trails.legs.handings
        return handings[self._carried[self._trails.handing[handings]]]

    @cached_property
    def _role(self) -> Longs:
        """Of each hop, where on the way it is."""
        trails = self._trails
        return np.where(trails.giver < 0, _ORIGIN, np.where(trails.went > 0, _RELAY, _LAST))


def same(rows: Longs, value: int) -> Longs:
    return np.full(len(rows), value, np.int64)


def between(start: Longs, end: Longs) -> Longs:
    """How long something took; by clocks that differ it took less than nothing: then nothing."""
    known = (start < NONE) & (end < NONE)
    return np.where(known, np.maximum(end - start, 0), NONE)
