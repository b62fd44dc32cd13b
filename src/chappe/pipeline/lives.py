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

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
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

Rows = Iterable[Mapping[str, Any]]
Process = tuple[str, int]


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


def known(
    rows: Rows, options: Options, written: int | None = None
) -> tuple[list[Life], int | None]:
    """All processes, by node and boot, and until when anybody told anything; None if nobody did.

    One that is followed by another life died then; one that is silent, while others tell of times
    much later, did some time. Times much after `written`, when the last file was, nobody can have
    known: a clock that is years ahead makes nobody dead.
    """
    grace_us = options.grace_ms * 1000
    by_process: dict[Process, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        by_process[row["node"], row["boot"]].append(row)
    if not by_process:
        return [], None
    horizon = _horizon((row for parts in by_process.values() for row in parts), grace_us, written)
    last = dict(sorted(by_process))
    found = []
    for (node, boot), parts in sorted(by_process.items()):
        alive, stopped, gone = (_latest(parts, name) for name in ("alive", "stopped", "gone"))
        silent = horizon is not None and alive is not None and horizon - alive > grace_us
        over = boot < last[node] or gone is not None or silent
        began = min(part["began"] for part in parts)
        missed = frozenset(part["hour"] for part in parts if part["missed"])
        died = stopped is None and over
        found.append(Life(node, boot, began, alive, stopped, gone, missed, died))
    return found, horizon


def _latest(rows: Rows, name: str) -> int | None:
    return max((row[name] for row in rows if row[name] is not None), default=None)


def _horizon(rows: Rows, grace_us: int, written: int | None) -> int | None:
    """The latest word of all; of times that nobody can have known, none."""
    if written is None:
        return _latest(rows, "alive")
    return max(_believed(rows, written + grace_us), default=written)


def _believed(rows: Rows, until: int) -> Iterator[int]:
    """When each process was last alive, where that is no later than a time."""
    for row in rows:
        right = row["alive"]
        if right is None:
            continue
        # Clocks are put right by that of one node among those that are linked. If it is that one
        # that is ahead, the others' own say what time it was.
        own = right - (row["began"] - row["boot"])
        if right <= until:
            yield right
        elif own <= until:
            yield own


def queues(rows: Rows) -> dict[tuple[str, str], tuple[int | None, int | None]]:
    """When a broker last went on with each queue, by app and target, and when it was last removed
    with messages."""
    latest: dict[str, dict[tuple[str, str], int]] = {name: {} for name in _OF_QUEUES}
    for row in rows:
        for name, times in latest.items():
            for queue in row[name] or ():
                key = queue["app"], queue["target"]
                times[key] = max(queue["at"], times.get(key, queue["at"]))
    recovered, removed = (latest[name] for name in _OF_QUEUES)
    return {key: (recovered.get(key), removed.get(key)) for key in recovered.keys() | removed}
