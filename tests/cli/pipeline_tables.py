"""Tables made by hand, as a run would make them: what pages and traces show is known then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from chappe.ids import EPOCH_MS
from chappe.pipeline.hours import hour_name
from chappe.pipeline.schema import HOP_NAMES, TABLES, arrow_schema
from chappe.pipeline.table import Table

# 2026-03-01 10:00:00 UTC
BORN = 1_772_359_200_000_000
MINUTE = 60_000_000
HOUR = hour_name(BORN)


def snowflake(ms_after: int = 0, sequence: int = 1) -> int:
    """The id of a message that was born so long after BORN."""
    return ((BORN // 1000 + ms_after - EPOCH_MS) << 22) | sequence


def put(tables: Path, name: str, *rows: dict[str, Any], run: int = 1) -> None:
    """Add rows to a table; what a row lacks is null, and its hour the first one."""
    schema = arrow_schema(TABLES[name])
    whole = [{"hour": HOUR, **row} for row in rows]
    assert all(row.keys() <= set(schema.names) for row in whole)
    Table(tables, name).put(pa.Table.from_pylist(whole, schema=schema), run, None)


def hop(kind: str, node: str, after_us: int, **more: Any) -> dict[str, Any]:
    """A hop so long after BORN."""
    known = {"kind": kind, "node": node, "boot": 1, "serial": 1, "at": BORN + after_us, "shift": 0}
    assert more.keys() <= set(HOP_NAMES)
    return known | more


def path(message: int | None, family: str, *hops: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A message's path."""
    known = {
        "family": family,
        "app": "main",
        "message": message,
        "sender": "user:alice",
        "born": BORN,
        "ended": max(one["at"] + one["shift"] for one in hops),
        "share": 1.0,
        "open": False,
        "hops": list(hops),
    }
    return known | more


def put_rooms(tables: Path, minutes: list[int], rooms: int = 12) -> None:
    """Rooms, of which the first is a hot spot, their brokers, and links between roles."""
    put(
        tables,
        "rooms",
        *(
            {
                "app": "main",
                "room": f"room:{n}",
                "window": window,
                "messages": 10,
                "scaled": 1000.0,
                "deliveries": 50,
                "counted": 6000 if n == 0 else None,
                "rate": 100.0 if n == 0 else 1000 / 60,
                "members": 5,
                "gateways": 2,
                "partition": 0 if n == 0 else None,
                "share": 0.25 if n == 0 else None,
                "hot": n == 0,
            }
            for window in minutes
            for n in range(rooms)
        ),
    )
    put(
        tables,
        "room_load",
        *(
            {
                "node": node,
                "partition": partition,
                "window": window,
                "messages": 4000 * (1 + partition),
                "copies": 8000 * (1 + partition),
                "rooms": 6,
                "members": 30,
                "share": (1 + partition) / 3,
                "imbalance": 2 * (1 + partition) / 3,
            }
            for window in minutes
            for partition, node in enumerate(("one", "two"))
        ),
    )
    put(
        tables,
        "links",
        *(
            {
                "node": "one",
                "peer": "two",
                "role": role,
                "window": window,
                "handed": 0,
                "arrived": 0,
                "probes": 60,
                "failed": 3 if role == "proxy" else 0,
                "probe_p50": 200,
                "probe_p99": 2000,
            }
            for window in minutes
            for role in ("publisher", "proxy", "broker")
        ),
    )


def put_jobs(tables: Path, minutes: list[int]) -> None:
    """A note each minute, to more and more clients."""
    put(
        tables,
        "jobs",
        *(
            {
                "app": "main",
                "job": f"j{n}",
                "note": f"m{n}",
                "target": "topic:<b>news</b>",
                "window": window,
                "born": window + 5_000_000,
                "expires": window + 86_400_000_000,
                "aimed": 1000 + n,
                "sent": 900,
                "arrived": 800,
                "clicked": 80,
                "offline": 100 + n,
                "dropped": 30,
                "withdrawn": 20,
                "waiting": 170 + n,
                # Three of four in a millisecond, the others in a second.
                "p99": 1_010_000.0,
                "buckets": [{"bucket": 349, "count": 600}, {"bucket": 698, "count": 200}],
            }
            for n, window in enumerate(minutes)
        ),
    )


def put_day(tables: Path) -> None:
    """Every table, with a little of everything."""
    minutes = [BORN + n * MINUTE for n in range(90)]
    put(tables, "paths", path(snowflake(), "topic", hop("published", "one", 10), target="topic:t"))
    put(
        tables,
        "latency",
        *(
            {
                "app": "main",
                "family": family,
                "hop": kind,
                "role": role,
                "window": window,
                "count": 100,
                "scaled": 100.0,
                # 99 of a millisecond, one of a second.
                "buckets": [{"bucket": 349, "count": 99}, {"bucket": 698, "count": 1}],
            }
            for window in minutes
            for family, kind, role in (
                ("topic", "delivery", "whole"),
                ("topic", "hub", "origin"),
                ("topic", "link", "last"),
                ("send", "delivery", "whole"),
                ("queue", "wait", "whole"),
                ("request", "answer", "whole"),
                ("push", "store", "whole"),
                ("push", "arrival", "whole"),
            )
        ),
    )
    put(
        tables,
        "delivery",
        *(
            {
                "app": f"app-{n}",
                "family": "topic",
                "window": window,
                "messages": 1000,
                "delivered": 1000,
                "in_time": 999,
                "scaled": 100_000.0,
                "ratio": 1.0,
                "ratio_in_time": 0.999,
            }
            for window in minutes
            for n in range(12)
        ),
    )
    put(
        tables,
        "links",
        *(
            {
                "node": node,
                "peer": peer,
                "window": window,
                "handed": 1000,
                "arrived": 1000 - (node == "three"),
                "success": 1.0,
                "delay_p50": 200.0,
                "delay_p99": 900.0,
                "beats": 12,
                "round_trip": 300,
                "ahead": 1500 if node < peer else -1500,
                "ups": 0,
                "downs": int(node == "three" and window == minutes[30]),
                "down_us": 2_000_000 if node == "three" and window == minutes[30] else 0,
            }
            for window in minutes
            for node in ("one", "two", "three")
            for peer in ("one", "two", "three")
            if node != peer
        ),
    )
    put_rooms(tables, minutes)
    put_jobs(tables, minutes)
    put(
        tables,
        "queues",
        *(
            {
                "app": "main",
                "queue": queue,
                "window": window,
                "stored": 600,
                "lent": 610,
                "acked": 590,
                "returned": 10,
                "died": 1,
                "cancelled": 0,
                "purged": 0,
                "replayed": 0,
                "lag": 10 * (n + 1),
                "age_p50": 2000.0,
                "age_p99": 50_000.0,
                "age_max": 2_000_000,
            }
            for n, window in enumerate(minutes)
            for queue in ("queue:jobs", "queue:mails")
        ),
    )
    put(
        tables,
        "sessions",
        *(
            {
                "app": "main",
                "edge": edge,
                "window": window,
                "opened": 10,
                "closed": 9,
                "reconnects": 3,
                "online": 100 + n,
                "churn": 0.08,
                "duration_p50": 6e7,
                "duration_p99": 6e8,
            }
            for n, window in enumerate(minutes)
            for edge in ("websocket", "tcp")
        ),
    )
    put(
        tables,
        "audit",
        *(
            {
                "app": "main",
                "family": family,
                "message": snowflake(n * 1000),
                "sender": "user:alice",
                "target": target,
                "verdict": verdict,
                "reason": reason,
                "node": "three",
                "at": BORN + n * 1_000_000,
                "born": BORN + n * 1_000_000,
            }
            for n, (family, target, verdict, reason) in enumerate(
                [
                    ("queue", "queue:jobs", "lost", "its node never came back"),
                    ("topic", "topic:<b>x</b></script>", "unknown", "killed node's last interval"),
                    ("topic", "topic:t", "late", "came after 1.2 s"),
                    ("send", "user:bob", "duplicated", "delivered twice"),
                ]
            )
        ),
    )
