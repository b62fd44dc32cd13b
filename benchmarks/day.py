"""Traffic by the million, to measure with: a day on three nodes, made column by column.

Of the rows half are of topics over three nodes (four each), a quarter of queues (three each:
stored, lent, acked), the rest of messages within a node and of requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from chappe.ids import EPOCH_MS
from chappe.pipeline.schema import EVENT, arrow_schema

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
# 2026-03-16T00:00:00Z
DAY = 1_773_619_200 * SECOND
SCHEMA = arrow_schema(EVENT)

Rows = dict[str, Any]


def write(folder: Path, rows: int, hours: int = 24, seed: int = 1, first: int = 0) -> None:
    """Write about so many rows, spread over hours from the first, a file for each node and hour."""
    random = np.random.default_rng(seed)
    for hour in range(first, first + hours):
        begin = DAY + hour * HOUR
        parts: dict[str, list[pa.Table]] = {"n1": [], "n2": [], "n3": []}
        for node, part in _traffic(random, begin, rows // hours):
            parts[node].append(part)
        when = datetime.fromtimestamp(begin // SECOND, UTC)
        place = folder / f"date={when:%Y-%m-%d}" / f"hour={when:%H}"
        place.mkdir(parents=True, exist_ok=True)
        for node, tables in parts.items():
            whole = pa.concat_tables([*tables, _lives(node, begin)])
            start = hour * 100_000_000 + seed * 10_000_000 + int(node[1:]) * 3_333_333
            serial = pa.array(np.arange(whole.num_rows) + start)
            whole = whole.set_column(SCHEMA.get_field_index("serial"), "serial", serial)
            pq.write_table(whole, place / f"{node}-{seed}-0.parquet", compression="zstd")


def _table(count: int, **columns: Any) -> pa.Table:
    """A table of so many rows: columns are arrays, or one value for all, or null."""
    zeros = pa.array(np.zeros(count, dtype=np.int32))
    common = {"v": 1, "boot": DAY, "serial": 0, "share": 1.0, **columns}
    arrays = []
    for field in SCHEMA:
        value = common.get(field.name)
        if isinstance(value, np.ndarray):
            arrays.append(pa.array(value, field.type))
        elif isinstance(value, pa.Array):
            arrays.append(value)
        else:
            arrays.append(pa.array([value], field.type).take(zeros))
    return pa.table(arrays, schema=SCHEMA)


def _traffic(random: np.random.Generator, begin: int, rows: int) -> Iterator[tuple[str, pa.Table]]:
    def times(count: int) -> Any:
        return np.sort(random.integers(0, HOUR - 10 * SECOND, count)) + begin

    def some(count: int, name: str, of: int) -> pa.Array:
        names = pa.array([f"{name}{n}" for n in range(of)])
        return names.take(pa.array(random.integers(0, of, count)))

    def took(count: int, mean: int) -> Any:
        return random.exponential(mean, count).astype(np.int64) + 20

    def ids(true: Any) -> Any:
        return ((true // 1000 - EPOCH_MS) << 22) | random.integers(0, 1 << 22, len(true))

    def about(true: Any, target: str, of: int) -> Rows:
        count = len(true)
        return {
            "app": some(count, "app", 3),
            "message": ids(true),
            "sender": some(count, "user/u", 5000),
            "target": some(count, target, of),
            "bytes": random.integers(10, 500, count),
        }

    count = rows // 8
    came = times(count)
    topic = {"kind": "published", **about(came, "topic/t", 200)}
    left = came + took(count, 100)
    home = left + took(count, 400)
    gone = home + took(count, 50)
    for node, start, end, before, after, n in (
        ("n1", came, left, None, ["n2"], 0),
        ("n2", home, gone, "n1", ["n1", "n3"], 3),
        ("n1", gone + took(count, 300), gone + 3000, "n2", None, 1),
        ("n3", gone + took(count, 400), gone + 4000, "n2", None, 2),
    ):
        yield (
            node,
            _table(count, **topic, node=node, came=start, at=np.maximum(start, end),
                   came_from=before, went_to=after, n=n),
        )  # fmt: skip

    count = rows // 12
    came = times(count)
    queued = about(came, "queue/q", 50)
    stored = came + took(count, 900)
    lent = stored + took(count, 50_000)
    yield "n2", _table(count, **queued, kind="stored", node="n2", came=came, at=stored)
    work = {key: queued[key] for key in ("app", "message", "target")}
    work |= {"node": "n2", "group_name": "g", "attempt": 1}
    yield "n2", _table(count, **work, kind="lent", at=lent)
    yield "n2", _table(count, **work, kind="acked", at=lent + took(count, 20_000))

    count = rows // 8
    came = times(count)
    sent = about(came, "user/u", 5000)
    yield (
        "n3",
        _table(count, **sent, kind="sent", node="n3", came=came, at=came + took(count, 90), n=1),
    )

    count = rows // 16
    came = times(count)
    labels = pa.array([f"n3.{number}" for number in ids(came).tolist()])
    asked = {"node": "n3", "app": some(count, "app", 3), "label": labels}
    yield "n3", _table(count, **asked, kind="asked", at=came, target="service/s", sender="user/u")
    yield "n3", _table(count, **asked, kind="answered", came=came, at=came + took(count, 2000))


def _lives(node: str, begin: int) -> pa.Table:
    alive = np.arange(begin, begin + HOUR, SECOND)
    beats = np.arange(begin, begin + HOUR, MINUTE // 6)
    beat = {"kind": "link", "node": node, "at": beats, "ahead": 0, "round_trip": 300}
    peers = sorted({"n1", "n2", "n3"} - {node})
    return pa.concat_tables(
        [
            _table(len(alive), kind="node_alive", node=node, at=alive),
            *(_table(len(beats), **beat, peer=peer) for peer in peers),
        ]
    )
