"""Who was connected, and how often they came and went."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from chappe.pipeline.report.chart import Section, colours, rates, timed_lines
from chappe.pipeline.report.span import Span

_COUNTED: Final = {
    "opened": "opened a minute",
    "closed": "closed a minute",
    "reconnects": "came back soon after leaving, a minute",
}
_DURATIONS: Final = {"duration_p50": "p50", "duration_p99": "p99"}


def section(table: pa.Table, span: Span) -> Section:
    """The section of sessions, of a table in steps."""
    made = Section(
        "Sessions",
        "Sessions by the edge that they came in through: how many there were at the end of each "
        f"{span.step_told}, how many came and went, and how long those that ended had lasted.",
        "Nobody was connected in this time.",
    )
    if not table.num_rows:
        return made
    now = online(table, span)
    edges = sorted(now)
    looks = colours(edges)
    made.drawings.append(
        rates("online", span, {edge: now[edge] for edge in edges}, looks, wide=True)
    )
    sums = _sums(table)
    for name, title in _COUNTED.items():
        found = {
            edge: [
                (sums.get((edge, step), {}).get(name) or 0) / span.step_min for step in span.steps
            ]
            for edge in edges
        }
        made.drawings.append(rates(title, span, found, looks))
    # Of a longer step the largest of its minutes: percentiles do not add up.
    longest = {
        word: [_longest(sums, edges, step, name) for step in span.steps]
        for name, word in _DURATIONS.items()
    }
    if any(ms is not None for ys in longest.values() for ms in ys):
        made.drawings.append(timed_lines("lasted", span, longest, colours(longest)))
    return made


def online(table: pa.Table, span: Span) -> dict[str, list[float]]:
    """How many were online in each step, by edge; what has no word of a step has not changed."""
    latest: dict[tuple[str, str], dict[int, int]] = {}
    columns = (table[name].to_pylist() for name in ("app", "edge", "step", "online"))
    for app, edge, step, count in zip(*columns, strict=True):
        latest.setdefault((app or "", edge or ""), {})[step] = count or 0
    found: dict[str, list[float]] = {}
    for (_app, edge), at in latest.items():
        now, totals = at.get(span.before, 0), found.setdefault(edge, [0.0] * len(span.steps))
        for n, step in enumerate(span.steps):
            now = at.get(step, now)
            totals[n] += now
    return found


def _sums(table: pa.Table) -> dict[tuple[str, int], dict[str, Any]]:
    rows = (
        table.group_by(["edge", "step"])
        .aggregate([*((name, "sum") for name in _COUNTED), *((n, "max") for n in _DURATIONS)])
        .to_pylist()
    )
    return {
        (row["edge"] or "", row["step"]): {name.rpartition("_")[0]: row[name] for name in row}
        for row in rows
    }


def _longest(
    sums: dict[tuple[str, int], dict[str, Any]], edges: list[str], step: int, name: str
) -> float | None:
    known = [sums.get((edge, step), {}).get(name) for edge in edges]
    return max((us / 1000 for us in known if us is not None), default=None)
