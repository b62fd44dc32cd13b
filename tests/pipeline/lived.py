"""What became of a cluster that was at work: what its clients know, and what the tables say."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from chappe.ids import snowflake_ms
from chappe.pipeline.table import read
from tests.pipeline.live import NAMES, Known, Load

SECOND = 1_000_000
Row = dict[str, Any]


class Lived(NamedTuple):
    """What clients know, and what the tables say."""

    load: Load
    # When each node was killed.
    killed: dict[str, int]
    tables: Path

    def table(self, name: str) -> list[Row]:
        rows: list[Row] = read(self.tables, name).to_pylist()
        return rows

    def audit(self, family: str, *verdicts: str) -> list[Row]:
        rows = [row for row in self.table("audit") if row["family"] == family]
        return [row for row in rows if row["verdict"] in verdicts]

    def clocks_wrong_by(self) -> int:
        """By how much times may be wrong that were put right: an offset by half a round trip of
        those that it is taken from, a way over two links by both."""
        trips = defaultdict[tuple[str, str, int], list[int]](list)
        for row in self.table("events"):
            if row["kind"] == "link":
                minute = row["at"] // (60 * SECOND)
                trips[row["node"], row["peer"], minute].append(row["round_trip"])
        worst = dict.fromkeys(NAMES[1:], 0)
        for (node, peer, _), all_ in trips.items():
            if "n0" in (node, peer):
                other = peer if node == "n0" else node
                worst[other] = max(worst[other], sorted(all_)[(len(all_) + 3) // 4 - 1])
        return sum(worst.values()) // 2 + SECOND // 1000

    def size_of(self) -> dict[int | str, int]:
        """The size of each message and request that any node told of."""
        return {
            path["message"] or path["label"]: hop["bytes"]
            for path in self.table("paths")
            for hop in path["hops"]
            if hop["bytes"] is not None
        }


def handed_then(published: Known, topic: str, since: int, until: int) -> set[int]:
    """Messages that clients of the first node published to a topic within a time."""
    ids = {published.ids[size] for size in published.of("ok", to=topic, via=("n0",))}
    return {one for one in ids if since < snowflake_ms(one) * 1000 < until}


def hops_over_links(paths: list[Row], node: str) -> Iterator[tuple[Row, Row]]:
    """What came to a node from another, or from it, each with what that other told of it."""
    for path in paths:
        for hop in path["hops"]:
            if hop["kind"] == "published" and node in (hop["node"], hop["came_from"]):
                for before in path["hops"]:
                    to = before["went_to"] or ()
                    if before["node"] == hop["came_from"] and hop["node"] in to:
                        yield hop, before
                        break
