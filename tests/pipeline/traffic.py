"""Traffic with a known truth: what nodes would have told of it, and what really happened.

A world has nodes whose clocks are wrong, and one true time. Whatever is done in it is told by its
nodes as their clocks say, into rows of the events' schema; `save` writes them as nodes do.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from chappe.events.schema import COLUMNS, VERSION
from chappe.ids import EPOCH_MS

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
# 2026-11-16T00:00:00Z
DAY = 1_794_787_200 * SECOND

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
    """A node: a clock that is ahead of the truth, a life, a number for each event."""

    def __init__(self, name: str, ahead: int = 0, drift_ppm: float = 0) -> None:
        self.name = name
        self.ahead = ahead
        self.drift_ppm = drift_ppm
        # When each of its lives began, and the numbers of its events.
        self._lives: list[tuple[int, Iterator[int]]] = []

    def start(self, true: int) -> None:
        self._lives.append((true, itertools.count(1)))

    def number(self, true: int) -> tuple[int, int]:
        """The life that a time is in, by its begin, and the number of its next event."""
        began, serials = [life for life in self._lives if life[0] <= true][-1]
        return self.clock(began), next(serials)

    def clock(self, true: int) -> int:
        return true + self.ahead + round((true - DAY) * self.drift_ppm / 1e6)


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
        for name in ("came",):
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

    def id_at(self, true: int) -> int:
        """A message's id, given at a time."""
        return ((true // 1000 - EPOCH_MS) << 22) | (next(self._ids) & 0x3FFFFF)

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
        away: Mapping[str, tuple[int, int]] | None = None,
    ) -> None:
        """Beats over all links; a slow one says something wrong of the clocks. With a node that is
        away there are none."""
        for n, true in enumerate(range(begin, end, every)):
            gone = {name for name, (left, back) in (away or {}).items() if left <= true < back}
            here = [node for node in self.nodes.values() if node.name not in gone]
            for node, peer in itertools.permutations(here, 2):
                slow = n % 3 == 1
                ahead = peer.clock(true) - node.clock(true) + (40_000 if slow else 0)
                trip = 90_000 if slow else 400 + n % 7
                self.tell(node.name, true, "link", peer=peer.name, ahead=ahead, round_trip=trip)

    def publish(
        self,
        true: int,
        via: list[tuple[str, int, int]],
        *,
        app: str = "a",
        receivers: int = 2,
        lost_at: str | None = None,
    ) -> int:
        """A message to a topic, through nodes one after another: each with how long the way to it
        took and how long it kept it. One may never tell of it. Returns the message's id."""
        message = self.id_at(true)
        about = {
            "app": app,
            "message": message,
            "sender": "user/s",
            "target": "topic/t",
            "bytes": 10,
        }
        before = None
        for place, (node, travel, inside) in enumerate(via):
            if node == lost_at:
                break
            came = true + travel
            true = came + inside
            following = [via[place + 1][0]] if place + 1 < len(via) else None
            self.tell(
                node,
                true,
                "published",
                **about,
                came=came,
                came_from=before,
                went_to=following,
                n=receivers if following is None else 0,
            )
            before = node
        return message

    def store(self, node: str, true: int, *, queue: str = "queue/q", app: str = "a") -> int:
        """A message that a queue has, 500 us after it came."""
        message = self.id_at(true)
        self.tell(
            node,
            true + 500,
            "stored",
            app=app,
            message=message,
            sender="user/s",
            target=queue,
            came=true,
            bytes=10,
        )
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
        parts[hour(row.get("at") or DAY), row.get("node") or "nobody"].append(row)
    for (when, node), part in parts.items():
        place = folder / f"date={when[:10]}" / f"hour={when[11:]}"
        place.mkdir(parents=True, exist_ok=True)
        table = pa.Table.from_pylist(part, schema=SCHEMA)
        pq.write_table(table, place / f"{node}-{tag}-0.parquet")
