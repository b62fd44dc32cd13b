"""Traffic with a known truth: what nodes would have told of it, and what really happened.

A world has nodes whose clocks are wrong, and one true time. Whatever is done in it is told by its
nodes as their clocks say, into rows of the events' schema; `save` writes them as nodes do.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from chappe.events.schema import COLUMNS, VERSION
from chappe.ids import EPOCH_MS

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
# 2026-03-16T00:00:00Z
DAY = 1_773_619_200 * SECOND

_TYPES = {
    "int": pa.int32(),
    "long": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "strings": pa.list_(pa.string()),
}
SCHEMA = pa.schema([pa.field(column.name, _TYPES[column.type]) for column in COLUMNS])
Row = dict[str, Any]


def hour(us: int) -> str:
    return datetime.fromtimestamp(us // SECOND, UTC).strftime("%Y-%m-%dT%H")


class Node:
    """A node: a clock that is ahead of the truth, from some times on by something else; lives, and
    a number for each event in them."""

    def __init__(self, name: str, ahead: int = 0, changes: Sequence[tuple[int, int]] = ()) -> None:
        self.name = name
        self._aheads = [(0, ahead), *changes]
        # When each of its lives began, and the numbers of its events.
        self._lives: list[tuple[int, Iterator[int]]] = []

    def start(self, true: int) -> None:
        self._lives.append((true, itertools.count(1)))

    def number(self, true: int) -> tuple[int, int]:
        """The life that a time is in, by its begin, and the number of its next event."""
        began, serials = [life for life in self._lives if life[0] <= true][-1]
        return self.clock(began), next(serials)

    def clock(self, true: int) -> int:
        return true + [ahead for begin, ahead in self._aheads if begin <= true][-1]


class Hop(NamedTuple):
    """A message at a node: where it came from, how long that took and how long it was kept, to how
    many sessions it was given."""

    node: str
    before: str | None = None
    travel: int = 0
    inside: int = 0
    n: int = 0


class World:
    """Nodes, and all that they tell."""

    def __init__(self, *nodes: Node, share: float = 1.0) -> None:
        self.nodes = {node.name: node for node in nodes}
        self.rows: list[Row] = []
        self.share = share
        self._ids = itertools.count()

    def tell(self, node: str, true: int, kind: str, **columns: Any) -> Row:
        """A node tells of something; times among the columns are true ones."""
        teller = self.nodes[node]
        for name in ("came", "due", "expires"):
            if columns.get(name) is not None:
                columns[name] = teller.clock(columns[name])
        boot, serial = teller.number(true)
        row = {
            "v": VERSION,
            "kind": kind,
            "node": node,
            "boot": boot,
            "serial": serial,
            "at": teller.clock(true),
            "share": self.share,
            **columns,
        }
        self.rows.append(row)
        return row

    def id_at(self, true: int, node: str | None = None) -> int:
        """A message's id, given at a time by the clock of a node."""
        told = self.nodes[node].clock(true) if node else true
        return ((told // 1000 - EPOCH_MS) << 22) | (next(self._ids) & 0x3FFFFF)

    def start(self, name: str, true: int) -> None:
        self.nodes[name].start(true)
        self.tell(name, true, "node_started")

    def live(self, name: str, begin: int, end: int, every: int = 10 * SECOND) -> None:
        """Say at intervals that all is written down."""
        for true in range(begin + every, end, every):
            self.tell(name, true, "node_alive")

    def beat(
        self,
        begin: int,
        end: int,
        every: int = 10 * SECOND,
        away: Mapping[str, Sequence[tuple[int, int]]] | None = None,
    ) -> None:
        """Beats over all links; every other is slow, and says something wrong of the clocks. With a
        node that is away there are none."""
        for n, true in enumerate(range(begin, end, every)):
            here = [
                node
                for node in self.nodes.values()
                if not any(left <= true < back for left, back in (away or {}).get(node.name, ()))
            ]
            for node, peer in itertools.permutations(here, 2):
                slow = n % 2 == 1
                ahead = peer.clock(true) - node.clock(true) + (40_000 if slow else 0)
                trip = 90_000 if slow else 400 + n % 7
                self.tell(node.name, true, "link", peer=peer.name, ahead=ahead, round_trip=trip)

    def travel(
        self, true: int, hops: Sequence[Hop], *, silent: Sequence[str] = (), **about: Any
    ) -> tuple[int, dict[str, int]]:
        """A message through nodes, those in front first; what comes to a silent one is lost.

        Returns its id, and when it left each node.
        """
        about = {
            "kind": "published",
            "app": "a",
            "sender": "user/s",
            "target": "topic/t",
            "bytes": 10,
            "message": self.id_at(true, hops[0].node),
            **about,
        }
        left: dict[str, int] = {}
        for hop in hops:
            if hop.node in silent or (hop.before is not None and hop.before not in left):
                continue
            came = (true if hop.before is None else left[hop.before]) + hop.travel
            left[hop.node] = came + hop.inside
            self.tell(
                hop.node,
                left[hop.node],
                **about,
                came=came,
                came_from=hop.before,
                went_to=[one.node for one in hops if one.before == hop.node] or None,
                n=hop.n,
            )
        return about["message"], left

    def publish(self, true: int, via: Sequence[tuple[str, int, int]], *, receivers: int = 2) -> int:
        """A message to a topic, through nodes one after another: each with how long the way to it
        took and how long it kept it. Returns the message's id."""
        names = [None, *(name for name, _travel, _inside in via)]
        last = len(via) - 1
        hops = [
            Hop(name, names[place], travel, inside, receivers if place == last else 0)
            for place, (name, travel, inside) in enumerate(via)
        ]
        return self.travel(true, hops)[0]

    def store(self, node: str, true: int, *, queue: str = "queue/q", **columns: Any) -> int:
        """A message that a queue has, 500 us after it came."""
        message = self.id_at(true, node)
        about = {"app": "a", "sender": "user/s", "target": queue, "bytes": 10}
        self.tell(node, true + 500, "stored", message=message, came=true, **{**about, **columns})
        return message

    def work(self, node: str, true: int, id: int, kind: str, **columns: Any) -> Row:
        """What becomes of a message in a queue."""
        about = {"app": "a", "target": "queue/q", "group_name": "g", "attempt": 1}
        return self.tell(node, true, kind, message=id, **{**about, **columns})

    def ask(self, node: str, true: int, label: str, took: int | None, **columns: Any) -> None:
        """A request, and its answer unless there is none."""
        about = {"app": "a", "label": label}
        self.tell(node, true, "asked", **about, sender="user/s", target="service/s", bytes=3)
        if took is not None:
            self.tell(node, true + took, "answered", **about, came=true, **columns)


def save(rows: list[Row], folder: Path, tag: str = "0") -> None:
    """Write rows as nodes do: by the hour of `at`, a file for each node."""
    parts: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        at = row.get("at") or DAY
        # A time that makes no sense is in some file nevertheless.
        when = at if abs(at - DAY) < 365 * 24 * HOUR else DAY
        parts[hour(when), row.get("node") or "nobody"].append(row)
    for (when, node), part in parts.items():
        place = folder / f"date={when[:10]}" / f"hour={when[11:]}"
        place.mkdir(parents=True, exist_ok=True)
        table = pa.Table.from_pylist(part, schema=SCHEMA)
        pq.write_table(table, place / f"{node}-{tag}-0.parquet")
