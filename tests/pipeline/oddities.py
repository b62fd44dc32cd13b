"""Paths as literals, for the audit to look at: each is of one message, named by its number."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from chappe.pipeline.schema import HOP_NAMES, TABLES
from chappe.pipeline.verdicts import Verdict

Row = dict[str, Any]
H0 = "2026-03-16T00"


def hop(kind: str, node: str, at: int, **columns: Any) -> Row:
    told = {"kind": kind, "node": node, "boot": 1, "serial": 1, "at": at, "shift": 0, **columns}
    return dict.fromkeys(HOP_NAMES) | told


def path(message: int, family: str, *hops: Row, **columns: Any) -> Row:
    """A path whose facts are those of its hops, unless they are said."""
    times = [one["at"] for one in hops]
    facts = {
        "hour": H0,
        "app": "a",
        "family": family,
        "message": message,
        "target": "queue:q" if family == "queue" else "topic:t",
        "born": times[0],
        "ready": times[0] if family == "queue" else None,
        "ended": max(times),
        "open": False,
        "suspect": True,
        "hops": list(hops),
    }
    return dict.fromkeys(TABLES["paths"].names) | facts | columns


def said(judged: Iterable[tuple[Row, list[Verdict]]]) -> dict[int, Verdict]:
    """The one thing that is said of each message, of those of which something is."""
    found = [(row["message"], verdicts) for row, verdicts in judged if verdicts]
    assert all(len(verdicts) == 1 for _message, verdicts in found), found
    return {message: verdict for message, [verdict] in found}
