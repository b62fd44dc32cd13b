"""Lives of nodes: until when each process told everything, and whether it ended in order.

A node says that all before is written down (`node_alive`), and that it stops. What a process did
between its last such word and its end nobody knows, but for queues and requests: of those it tells
before anybody else does.

A broker that goes on with a queue says so (`recovered`), after it told what it had no time to tell
before: then what is in the queue is known again, wherever that is now.

Whoever looks through the journals of nodes that are gone says which of them never came to say that
they stop (`node_gone`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from chappe.pipeline.clocks import Clocks
from chappe.pipeline.columns import NONE, Longs, equal, flags, longs, of_ranks, ranks, summed, whole
from chappe.pipeline.options import Options
from chappe.pipeline.schema import TABLES, arrow_schema

_OF_LIFE: Final = ("node_started", "node_alive", "node_stopped")
_OF_QUEUES: Final = ("recovered", "removed")
# The kinds of events that lives are made of, and their columns.
KINDS: Final = (*_OF_LIFE, "node_gone", "missed", *_OF_QUEUES)
COLUMNS: Final = ("kind", "node", "boot", "at", "app", "target", "n")
_SCHEMA = arrow_schema(TABLES["lives"])
_LATEST: Final = ("alive", "stopped", "gone")
_MERGED: Final = [("began", "min"), *((name, "max") for name in _LATEST)]
_MISSED: Final = ("node", "boot", "hour")

Process = tuple[str, int]
# An app's queue.
Queue = tuple[str, str]


class Life(NamedTuple):
    """A process of a node; times are by the clock of all, but for `boot`, which is its name."""

    node: str
    boot: int
    began: int
    alive: int | None
    stopped: int | None
    gone: int | None
    # The hours of which it did not tell everything.
    missed: frozenset[str]
    # It ended without a word.
    died: bool
    # Of the times at which hours were forgotten: when it was last known to be alive before each.
    then: tuple[tuple[str, int], ...] = ()

    def alive_before(self, hour: str) -> int | None:
        """When it was last known to be alive when hours before one were forgotten."""
        place = bisect_right(self.then, hour, key=lambda one: one[0])
        return self.then[place - 1][1] if place else None


def told(events: pa.Table, hour: str, clocks: Clocks) -> pa.Table:
    """What each process told of itself in an hour, of that hour's events."""
    words = events.filter(pc.is_in(events["kind"], value_set=pa.array(KINDS)))
    columns = {name: whole(words[name]) for name in COLUMNS}
    kind, at = columns["kind"], longs(columns["at"])
    shift = clocks.shifts(columns["node"], at)
    time = at + shift
    [node], names = ranks(columns["node"])
    boot = longs(columns["boot"])

    def when(*kinds: str) -> Longs:
        return np.where(flags(pc.is_in(kind, value_set=pa.array(kinds))), time, -NONE)

    missed = np.where(equal(kind, "missed"), longs(columns["n"], 1), 0)
    latest = {"alive": when(*_OF_LIFE), "stopped": when("node_stopped"), "gone": when("node_gone")}
    # The least is the largest of the negative.
    latest["began"] = -(boot + shift)
    made = summed({"node": node, "boot": boot}, {"missed": missed}, latest)
    of_node = of_ranks(made["node"], names)
    processes = list(zip(of_node.to_pylist(), made["boot"].tolist(), strict=True))
    found: dict[str, Any] = {
        "hour": [hour] * len(processes),
        "node": of_node,
        "boot": made["boot"],
        "began": -made["began"],
        **{name: _known(made[name]) for name in ("alive", "stopped", "gone")},
        "missed": made["missed"],
    }
    for name in _OF_QUEUES:
        by_process = _of_queues(columns, time, name)
        found[name] = [by_process.get(process, []) for process in processes]
    return pa.table([pa.array(found[f.name], f.type) for f in _SCHEMA], schema=_SCHEMA)


def _known(times: Longs) -> pa.Array:
    return pa.array(times, mask=times == -NONE)


def _of_queues(
    columns: Mapping[str, pa.Array], time: Longs, kind: str
) -> dict[Process, list[dict[str, Any]]]:
    """The queues that each process went on with, or removed: few."""
    places = np.flatnonzero(equal(columns["kind"], kind))
    names = ("node", "boot", "app", "target")
    told = pa.table({name: columns[name] for name in names}).take(pa.array(places))
    found = defaultdict(list)
    for row, at in zip(told.to_pylist(), time[places].tolist(), strict=True):
        queue = {"app": row["app"], "target": row["target"], "at": at}
        found[row["node"], row["boot"]].append(queue)
    return found


class Lived:
    """All that processes told of themselves, put together as it is read: a record for each process
    and for each queue, however many hours they were there."""

    def __init__(
        self,
        parts: Iterable[pa.Table],
        options: Options,
        written: int | None = None,
        forgotten: Sequence[str] = (),
    ) -> None:
        """Take the rows of the table in any order. Times much after `written`, when the last file
        was, nobody can have known: a clock that is years ahead makes nobody dead."""
        # All before each of these hours was forgotten one day; in order.
        self.forgotten = forgotten
        self._grace_us = options.grace_ms * 1000
        self._written = written
        self._horizon: int | None = None
        self._told: dict[Process, _Told] = defaultdict(_Told)
        self._latest: dict[str, dict[Queue, int]] = {name: {} for name in _OF_QUEUES}
        for rows in parts:
            self._add(rows)

    def _add(self, rows: pa.Table) -> None:
        rows = rows.append_column("before", self._befores(rows["hour"]))
        by_process = rows.group_by(["node", "boot", "before"], use_threads=False)
        for row in by_process.aggregate(_MERGED).to_pylist():
            self._told[row["node"], row["boot"]].add(row)
        for row in rows.filter(pc.not_equal(rows["missed"], 0)).select(_MISSED).to_pylist():
            self._told[row["node"], row["boot"]].missed.add(row["hour"])
        self._horizon = _later(self._horizon, _horizon(rows, self._until()))
        for name, latest in self._latest.items():
            for queue, at in _last_of(rows[name]):
                latest[queue] = max(at, latest.get(queue, at))

    def _befores(self, hours: pa.ChunkedArray) -> pa.Array:
        """By its place, the first time at which hours were forgotten that is after each."""
        codes = whole(hours).dictionary_encode()
        places = [bisect_right(self.forgotten, hour) for hour in codes.dictionary.to_pylist()]
        return pa.array(places, pa.int64()).take(codes.indices)

    def _until(self) -> int:
        return NONE if self._written is None else self._written + self._grace_us

    def known(self) -> tuple[list[Life], int | None]:
        """All processes, by node and boot, and until when anybody told anything; None if nobody
        did.

        One that is followed by another life died then; one that is silent, while others tell of
        times much later, did some time.
        """
        if not self._told:
            return [], None
        horizon = self._written if self._horizon is None else self._horizon
        last = dict(sorted(self._told))
        found = []
        for (node, boot), told in sorted(self._told.items()):
            alive, stopped, gone = (told.latest[name] for name in _LATEST)
            silent = horizon is not None and alive is not None and horizon - alive > self._grace_us
            over = boot < last[node] or gone is not None or silent
            one = Life(
                node=node,
                boot=boot,
                began=told.began,
                alive=alive,
                stopped=stopped,
                gone=gone,
                missed=frozenset(told.missed),
                died=stopped is None and over,
                then=told.then(self.forgotten),
            )
            found.append(one)
        return found, horizon

    def queues(self) -> dict[Queue, tuple[int | None, int | None]]:
        """When a broker last went on with each queue, by app and target, and when it was last
        removed with messages."""
        recovered, removed = (self._latest[name] for name in _OF_QUEUES)
        return {key: (recovered.get(key), removed.get(key)) for key in recovered.keys() | removed}


class _Told:
    """What one process told, so far as it is read."""

    def __init__(self) -> None:
        self.began = NONE
        self.latest: dict[str, int | None] = dict.fromkeys(_LATEST)
        self.missed: set[str] = set()
        self._alive: dict[int, int] = {}

    def add(self, row: Mapping[str, Any]) -> None:
        self.began = min(self.began, row["began_min"])
        for name in _LATEST:
            self.latest[name] = _later(self.latest[name], row[f"{name}_max"])
        before, alive = row["before"], row["alive_max"]
        if alive is not None:
            self._alive[before] = max(alive, self._alive.get(before, alive))

    def then(self, forgotten: Sequence[str]) -> tuple[tuple[str, int], ...]:
        places = sorted(place for place in self._alive if place < len(forgotten))
        times = accumulate((self._alive[place] for place in places), max)
        return tuple(zip((forgotten[place] for place in places), times, strict=True))


def _later(one: int | None, other: int | None) -> int | None:
    return max((time for time in (one, other) if time is not None), default=None)


def _horizon(rows: pa.Table, until: int) -> int | None:
    """The latest that any row tells that somebody was alive, of times until one."""
    told = rows.filter(rows["alive"].is_valid())
    right, began, boot = (longs(whole(told[name])) for name in ("alive", "began", "boot"))
    # Clocks are put right by that of one node among those that are linked. If it is that one that
    # is ahead, the others' own say what time it was.
    time = np.where(right <= until, right, right - (began - boot))
    time = time[time <= until]
    return int(time.max()) if len(time) else None


def _last_of(queues: pa.ChunkedArray) -> Iterator[tuple[Queue, int]]:
    """When each queue was last told of."""
    flat = whole(pc.list_flatten(queues))
    table = pa.Table.from_arrays(flat.flatten(), [field.name for field in flat.type])
    last = table.group_by(["app", "target"], use_threads=False).aggregate([("at", "max")])
    for row in last.to_pylist():
        yield (row["app"], row["target"]), row["at_max"]
