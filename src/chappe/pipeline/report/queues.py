"""What went into queues, what came out, and what stayed."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from chappe.pipeline.report.chart import (
    Section,
    colours,
    largest,
    lines,
    rates,
    timed_lines,
    told_ms,
)
from chappe.pipeline.report.span import Span

_COUNTED: Final = ("stored", "acked", "returned", "died")
# Rows on the page; the table has all.
_ROWS_MAX: Final = 100

Sums = dict[tuple[str, int], dict[str, float]]


def section(table: pa.Table, span: Span) -> Section:
    """The section of queues."""
    made = Section(
        "Queues",
        "Every message of a queue is recorded, whatever is sampled. Depth is what is in a queue "
        f"and not done at the end of each {span.step_told}; age how long messages waited, once "
        "they were due, to be handed out.",
        "No message went through a queue in this time; one that had would be here, whatever "
        "events.share is.",
    )
    if not table.num_rows:
        return made
    rows = _stepped(table, span)
    weights: dict[str, float] = {}
    for row in rows:
        weights[row["name"]] = weights.get(row["name"], 0) + row["stored"] + row["acked"]
    shown = largest(weights)
    names = list(dict.fromkeys(shown.values()))
    sums, looks = _summed(rows, shown), colours(names)

    def series(name: str, divide: float = 1.0) -> dict[str, list[float | None]]:
        return {
            queue: [
                None if (found := sums.get((queue, step), {}).get(name)) is None else found / divide
                for step in span.steps
            ]
            for queue in names
        }

    made.drawings.extend(
        [
            rates("stored a second", span, series("stored", span.seconds), looks),
            rates("done a second", span, series("acked", span.seconds), looks),
            lines("depth, in messages", span, series("lag"), looks, rangemode="tozero"),
            timed_lines("age: 99 of 100 waited no longer than", span, series("age", 1000), looks),
            rates("handed back, to be tried again", span, series("returned"), looks),
            rates("dead letters", span, series("died"), looks),
        ]
    )
    made.rows.extend(_totals(rows, weights))
    return made


def _stepped(table: pa.Table, span: Span) -> list[dict[str, Any]]:
    counted = (
        span.stepped(table.sort_by("window"))
        .group_by(["app", "queue", "step"], use_threads=False)
        .aggregate(
            [
                *((name, "sum") for name in _COUNTED),
                ("lag", "last"),
                ("age_p99", "max"),
                ("age_max", "max"),
            ]
        )
    )
    several = len(table["app"].unique()) > 1
    rows: list[dict[str, Any]] = counted.to_pylist()
    for row in rows:
        # Of one app alone its name tells nothing.
        row["name"] = f"{row['app']} {row['queue']}" if several else str(row["queue"])
        row |= {name: row[f"{name}_sum"] or 0 for name in _COUNTED}
    return rows


def _summed(rows: list[dict[str, Any]], shown: dict[str, str]) -> Sums:
    """What each line of a plot has at each step."""
    sums: Sums = {}
    for row in rows:
        at = sums.setdefault((shown[row["name"]], row["step"]), dict.fromkeys(_COUNTED, 0.0))
        for name in _COUNTED:
            at[name] += row[name]
        at["lag"] = at.get("lag", 0) + (row["lag_last"] or 0)
        if row["age_p99_max"] is not None:
            at["age"] = max(at.get("age", 0), row["age_p99_max"])
    return sums


def _totals(rows: list[dict[str, Any]], weights: dict[str, float]) -> list[Any]:
    """A table of queues, those with the most to do before all others."""
    heads = ("queue", "stored", "done", "handed back", "dead", "depth", "longest wait")
    found: dict[str, list[float]] = {}
    for row in sorted(rows, key=lambda row: row["step"]):
        sums = found.setdefault(row["name"], [0.0] * 6)
        for n, name in enumerate(_COUNTED):
            sums[n] += row[name]
        sums[4] = row["lag_last"] or 0
        sums[5] = max(sums[5], row["age_max_max"] or 0)
    ranked = sorted(found, key=lambda name: (-weights[name], name))
    told = [
        (name, *(f"{count:,.0f}" for count in found[name][:5]), told_ms(found[name][5] / 1000))
        for name in ranked[:_ROWS_MAX]
    ]
    if len(ranked) > _ROWS_MAX:
        told.append((f"and {len(ranked) - _ROWS_MAX:,} more", *[""] * 6))
    return [heads, *told]
