"""Clocks: by how much each node's differs from that of one among them, minute by minute.

Beats over links say how much the peer's clock is ahead, best where the way there and back was
shortest. Spark finds that for each pair and minute; what remains is small and is solved here: from
one reference node to all that are linked to it, directly or by others. What a node tells is shifted
by it then.

A minute without beats has the values of the last one with some, of the same hour or the one before.
So what beats say of an hour matters for it and the next, and for no other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from chappe.pipeline.columns import Longs, longs, ranks, whole
from chappe.pipeline.hours import HOUR_US, MINUTE_US, hour_us, window_of


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


def offsets(events: DataFrame) -> DataFrame:
    """Of each pair and minute the median of what its quickest quarter of beats says."""
    beats = events.where("kind = 'link' and ahead is not null and round_trip is not null")
    pairs = beats.select(
        "node",
        "peer",
        window_of(fn.col("at")).alias("window"),
        fn.struct("round_trip", "ahead").alias("beat"),
    )
    sorted_beats = fn.sort_array(fn.collect_list("beat"))
    grouped = pairs.groupBy("node", "peer", "window").agg(sorted_beats.alias("beats"))
    quickest = "array_sort(transform(slice(beats, 1, (size(beats) + 3) div 4), b -> b.ahead))"
    median = fn.expr(f"get({quickest}, cast(((size(beats) + 3) div 4 - 1) div 2 as int))")
    return grouped.select("node", "peer", "window", median.alias("ahead"))


def correct(rows: DataFrame, clocks: DataFrame) -> DataFrame:
    """Rows with `shift`; 0 where nothing is known of the node's clock."""
    known = fn.broadcast(clocks.select("node", fn.col("window").alias("minute"), "shift"))
    joined = rows.withColumn("minute", window_of(fn.col("at"))).join(
        known, ["node", "minute"], "left"
    )
    return joined.withColumn("shift", fn.coalesce("shift", fn.lit(0).cast("long"))).drop("minute")


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
