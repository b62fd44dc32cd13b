"""Clocks: by how much each node's differs from that of one among them, minute by minute.

Beats over links say how much the peer's clock is ahead, best where the way there and back was
shortest. Tasks find that for each pair and minute; what remains is solved in one place: from one
reference node to all that are linked to it, directly or by others. What a node tells is shifted
by it then.

A minute without beats has the values of the last one with some, of the same hour or the one before.
So what beats say of an hour matters for it and the next, and for no other.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from chappe.pipeline.columns import Longs, changes, grouped, longs, of_ranks, ranks, whole
from chappe.pipeline.hours import HOUR_US, MINUTE_US, and_before, hour_us
from chappe.pipeline.packing import read


class Offset(NamedTuple):
    """By how much a peer's clock was ahead of a node's in a minute."""

    node: str
    peer: str
    window: int
    ahead: int


class Shift(NamedTuple):
    """What to add to the times that a node told in a minute."""

    hour: str
    node: str
    window: int
    reference: str
    shift: int


def offsets(beats: pa.Table) -> pa.Table:
    """Of each pair and minute the median of what its quickest quarter of beats says.

    So many rows as there are pairs, times the minutes: of a hundred nodes that are all linked, some
    600,000 for an hour, about twelve bytes each as a pack.
    """
    beats = beats.filter(pc.and_(beats["ahead"].is_valid(), beats["round_trip"].is_valid()))
    [node, peer], names = ranks(whole(beats["node"]), whole(beats["peer"]))
    at, trip, ahead = (longs(whole(beats[name])) for name in ("at", "round_trip", "ahead"))
    window = at - at % MINUTE_US
    order, _starts = grouped([node, peer, window, trip, ahead])
    node, peer, window, ahead = (one[order] for one in (node, peer, window, ahead))
    starts = np.flatnonzero(changes(node, peer, window))
    sizes = np.diff(starts, append=len(order))
    quarter = (sizes + 3) // 4
    # Of each group the first, which were the quickest, by what they say.
    place = np.arange(len(order)) - np.repeat(starts, sizes)
    group = np.repeat(np.arange(len(starts)), sizes)
    quick = np.flatnonzero(place < quarter[group])
    said = ahead[quick][np.lexsort((ahead[quick], group[quick]))]
    return pa.table(
        {
            "node": of_ranks(node[starts], names),
            "peer": of_ranks(peer[starts], names),
            "window": pa.array(window[starts]),
            "ahead": pa.array(said[np.cumsum(quarter) - quarter + (quarter - 1) // 2]),
        }
    )


class Clocks:
    """What to add to the times that nodes told, by node and minute; sent to where rows are."""

    def __init__(self, rows: pa.Table) -> None:
        """Of rows of the table of clocks."""
        rows = rows.select(["node", "window", "shift"]).sort_by(
            [("node", "ascending"), ("window", "ascending")]
        )
        self._known: dict[str, tuple[Longs, Longs]] = {}
        [nodes], names = ranks(whole(rows["node"]))
        windows, shifts = longs(whole(rows["window"])), longs(whole(rows["shift"]))
        for rank, name in enumerate(names):
            mine = nodes == rank
            self._known[name] = windows[mine], shifts[mine]

    def most(self) -> int:
        """The most by which a time is put right, forwards or backwards."""
        return max(
            (int(abs(shifts).max(initial=0)) for _, shifts in self._known.values()), default=0
        )

    def shifts(self, nodes: pa.Array, at: Longs) -> Longs:
        """What to add to each time; 0 where nothing is known of the node's clock."""
        found = np.zeros(len(at), np.int64)
        [owner], names = ranks(nodes)
        minute = at - at % MINUTE_US
        for rank, name in enumerate(names):
            windows, shifts = self._known.get(name, (found[:0], found[:0]))
            if not len(windows):
                continue
            rows = np.flatnonzero(owner == rank)
            place = np.minimum(np.searchsorted(windows, minute[rows]), len(windows) - 1)
            known = windows[place] == minute[rows]
            found[rows[known]] = shifts[place[known]]
        return found


def solved(packs: Mapping[str, pa.Scalar], hours: Iterable[str]) -> Iterator[Shift]:
    """The shifts of all nodes in these hours, of packs of offsets by hour: no more than two are
    opened at a time."""
    for hour in sorted(hours):
        near = [read(packs[name]) for name in sorted(and_before([hour])) if name in packs]
        yield from solve(itertools.chain.from_iterable(map(_opened, near)), [hour])


def _opened(rows: pa.Table) -> Iterator[Offset]:
    columns = (rows[name].to_pylist() for name in Offset._fields)
    return itertools.starmap(Offset, zip(*columns, strict=True))


def solve(found: Iterable[Offset], hours: Iterable[str]) -> Iterator[Shift]:
    """Find the shifts of all nodes in these hours."""
    offsets = sorted(found)
    for hour in sorted(hours):
        begin = hour_us(hour)
        near = [one for one in offsets if begin - HOUR_US <= one.window < begin + HOUR_US]
        yield from _solve_hour(hour, begin, _by_pair(near))


Pairs = Mapping[tuple[str, str], Mapping[int, float]]


def _by_pair(offsets: Iterable[Offset]) -> Pairs:
    """Both directions of each pair, as one: the second node's clock against the first's."""
    said: dict[tuple[str, str], dict[int, list[int]]] = {}
    for node, peer, window, ahead in offsets:
        said.setdefault((node, peer), {}).setdefault(window, []).append(ahead)
        said.setdefault((peer, node), {}).setdefault(window, []).append(-ahead)
    return {
        pair: {window: sum(all_) / len(all_) for window, all_ in sorted(windows.items())}
        for pair, windows in said.items()
    }


def _solve_hour(hour: str, begin: int, pairs: Pairs) -> Iterator[Shift]:
    peers: dict[str, list[str]] = {}
    for node, peer in sorted(pairs):
        peers.setdefault(node, []).append(peer)
    steady = {pair: _filled(windows, begin) for pair, windows in pairs.items()}
    solved: set[str] = set()
    for reference in sorted(peers):
        if reference in solved:
            continue
        # Breadth first: each node is reached over the fewest links, whose errors add up.
        ahead = {reference: [0.0] * 60}
        waiting = deque([reference])
        while waiting:
            node = waiting.popleft()
            for peer in peers[node]:
                if peer not in ahead:
                    step = steady[node, peer]
                    ahead[peer] = [a + b for a, b in zip(ahead[node], step, strict=True)]
                    waiting.append(peer)
        solved |= ahead.keys()
        for node, values in sorted(ahead.items()):
            for minute, value in enumerate(values):
                window = begin + minute * MINUTE_US
                yield Shift(hour, node, window, reference, -round(value))


def _filled(windows: Mapping[int, float], begin: int) -> list[float]:
    """A value for each minute of an hour: its own, or the last before, or else the first after."""
    value = next(iter(windows.values()))
    for window, ahead in windows.items():
        if window <= begin:
            value = ahead
    filled = []
    for minute in range(60):
        value = windows.get(begin + minute * MINUTE_US, value)
        filled.append(value)
    return filled
