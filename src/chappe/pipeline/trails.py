"""Trails: the hops of many messages, message by message, each in order of time.

All hops are one set of columns; which message a hop is of follows from where each message begins.
So what is to be known of messages is found for all of them at once.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from chappe.pipeline.columns import NONE, Flags, Longs, equal, flags, longs, present, ranks
from chappe.pipeline.kinds import (
    DROPPING,
    MESSAGE_KINDS,
    PASSING,
    PUBLISHING,
    ROLES,
    ROOM_ADDRESS,
)
from chappe.pipeline.legs import Legs

BITS: Final = {kind: 1 << n for n, kind in enumerate(MESSAGE_KINDS)}


def bits_of(*kinds: str) -> int:
    return sum(BITS[kind] for kind in kinds)


class Trails:
    """Hops by column, and where each message begins."""

    def __init__(self, columns: Mapping[str, pa.Array], starts: Longs) -> None:
        self._columns = columns
        self.starts = starts
        self.size = len(columns["at"])
        counts = np.diff(starts, append=self.size)
        # Which message each hop is of.
        self.of: Longs = np.repeat(np.arange(len(starts), dtype=np.int64), counts)

    # Of hops.

    @cached_property
    def kind(self) -> Longs:
        """Each kind is a bit."""
        encoded = self._columns["kind"].dictionary_encode()
        table = np.array([BITS.get(name, 0) for name in encoded.dictionary.to_pylist()], np.int64)
        return table[longs(encoded.indices)]

    @cached_property
    def shift(self) -> Longs:
        return longs(self._columns["shift"], 0)

    @cached_property
    def at(self) -> Longs:
        return longs(self._columns["at"])

    @cached_property
    def time(self) -> Longs:
        """By the clock of all."""
        return self.at + self.shift

    @cached_property
    def came(self) -> Longs:
        """When it came to the node, by that node's clock, or NONE."""
        return longs(self._columns["came"])

    @cached_property
    def due(self) -> Longs:
        return longs(self._columns["due"])

    @cached_property
    def n(self) -> Longs:
        return longs(self._columns["n"], 0)

    @cached_property
    def gives(self) -> Flags:
        """Where somebody may have been given it: it is not told that they were none."""
        return longs(self._columns["n"], 1) > 0

    @cached_property
    def attempt(self) -> Longs:
        return longs(self._columns["attempt"], 1)

    @cached_property
    def target(self) -> Longs:
        """As a number, which means something only beside others of these trails; so are groups."""
        return ranks(self._columns["target"])[0][0]

    @cached_property
    def group(self) -> Longs:
        return ranks(self._columns["group_name"])[0][0]

    @cached_property
    def client(self) -> Longs:
        """As a number, or -1: it is of none, or of several."""
        return ranks(self._columns["client"])[0][0]

    @cached_property
    def counts(self) -> Flags:
        """Where it is told how many."""
        return present(self._columns["n"])

    @cached_property
    def offline(self) -> Longs:
        return longs(self._columns["offline"])

    @cached_property
    def expires(self) -> Longs:
        """When a note of push does, by the clock of all, or NONE."""
        told = longs(self._columns["expires"])
        return np.where(told < NONE, told + self.shift, NONE)

    @cached_property
    def well(self) -> Flags:
        """Where no reason is told."""
        return ~present(self._columns["reason"])

    @cached_property
    def role(self) -> Longs:
        """In which role of rooms a node tells it, as a number: 0 of those that tell none, such as
        gateways, which give it to sessions as any node does."""
        return self._roles("role")

    @cached_property
    def taken_as(self) -> Longs:
        """In which role it came there, if in another."""
        return self._roles("taken_as")

    def _roles(self, name: str) -> Longs:
        column = self._columns[name]
        if column.null_count == len(column):
            return np.zeros(self.size, np.int64)
        encoded = column.dictionary_encode()
        table = [ROLES.get(name, 0) for name in encoded.dictionary.to_pylist()]
        return np.array([*table, 0], np.int64)[longs(encoded.indices, len(table))]

    @cached_property
    def to_room(self) -> Flags:
        """Where it is published to a room."""
        rooms = flags(pc.starts_with(self._columns["target"], ROOM_ADDRESS))
        return rooms & self.any_of(*PUBLISHING)

    @cached_property
    def unwanted(self) -> Flags:
        """Where it was dropped because nobody wanted it."""
        return equal(self._columns["reason"], "nobody")

    def for_reason(self, *reasons: str) -> Flags:
        """Where one of these reasons is told."""
        return flags(pc.is_in(self._columns["reason"], value_set=pa.array(reasons)))

    @cached_property
    def _nodes(self) -> tuple[list[Longs], list[str]]:
        peers = pc.list_flatten(self._columns["went_to"])
        return ranks(self._columns["node"], self._columns["came_from"], peers)

    @property
    def nodes(self) -> list[str]:
        """What the numbers of nodes stand for."""
        return self._nodes[1]

    @property
    def node(self) -> Longs:
        return self._nodes[0][0]

    @property
    def giver(self) -> Longs:
        """The node that it came from, or -1."""
        return self._nodes[0][1]

    @property
    def peers(self) -> Longs:
        """The nodes that it went to, of all hops one after another; `handing` says of which."""
        return self._nodes[0][2]

    @cached_property
    def went(self) -> Longs:
        """To how many nodes it went."""
        return longs(pc.list_value_length(self._columns["went_to"]), 0)

    @cached_property
    def handing(self) -> Longs:
        """The hop of each of `peers`."""
        return np.repeat(np.arange(self.size, dtype=np.int64), self.went)

    def any_of(self, *kinds: str) -> Flags:
        """Which hops are of these kinds."""
        found: Flags = (self.kind & bits_of(*kinds)) != 0
        return found

    @cached_property
    def passes(self) -> Flags:
        """Where it left a node."""
        return self.any_of(*PASSING)

    @cached_property
    def drops(self) -> Flags:
        """Where it was lost."""
        return self.any_of(*DROPPING)

    @cached_property
    def legs(self) -> Legs:
        """From node to node; not for longer than the trails. In a circle both would stay until
        somebody looks for such circles, and they are large."""
        return Legs(weakref.proxy(self))

    # Of messages.

    def first(self, values: Longs, where: Flags | None = None) -> Longs:
        """The least value of each message, of hops that something is true of; else NONE."""
        chosen = values if where is None else np.where(where, values, NONE)
        return np.minimum.reduceat(chosen, self.starts)

    def last(self, values: Longs, where: Flags | None = None) -> Longs:
        """The largest; else NONE."""
        chosen = values if where is None else np.where(where, values, -NONE)
        found = np.maximum.reduceat(chosen, self.starts)
        return np.where(found == -NONE, NONE, found)

    def total(self, values: Longs, where: Flags) -> Longs:
        return np.add.reduceat(np.where(where, values, 0), self.starts)

    def kinds(self) -> Longs:
        """All kinds of each message."""
        return np.bitwise_or.reduceat(self.kind, self.starts)

    def those(self, messages: Longs) -> Flags:
        """Whether each message is among some."""
        found = np.zeros(len(self.starts), dtype=np.bool_)
        found[messages] = True
        return found

    def repeated(self, where: Flags, *words: Longs) -> Flags:
        """Messages with two hops of the same words, among those that something is true of."""
        rows = np.flatnonzero(where)
        if len(rows) < 2:
            return self.those(rows[:0])
        parts = [self.of[rows], *(word[rows] for word in words)]
        order = np.lexsort(parts[::-1])
        same = np.logical_and.reduce([part[order][1:] == part[order][:-1] for part in parts])
        return self.those(parts[0][order][1:][same])

    def first_word(self, name: str) -> pa.Array:
        """The first of each message's hops that is told of a column."""
        column = self._columns[name]
        hops = np.arange(self.size, dtype=np.int64)
        place = self.first(hops, present(column)) if column.null_count else self.starts
        return column.take(pa.array(place, mask=place >= NONE))

    def latest(self, where: Flags) -> Longs:
        """For each hop, the last one of its message up to it that something is true of, or -1."""
        marked = np.where(where, np.arange(self.size, dtype=np.int64), -1)
        found = np.maximum.accumulate(marked)
        return np.where(found >= self.starts[self.of], found, -1)


def done_with(trails: Trails) -> Flags:
    """Hops with which a group is done; one that does not want it is done with it, too."""
    passed = trails.drops & trails.unwanted & (trails.group >= 0)
    return trails.any_of("acked", "died") | passed
