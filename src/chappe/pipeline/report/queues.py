"""What went into queues, what came out, and what stayed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import plotly.graph_objects as go
import pyarrow as pa

from chappe.pipeline.report.chart import Section, colours, grid, largest, line
from chappe.pipeline.report.span import Span

_COUNTED: Final = ("stored", "acked", "returned", "died")


def section(table: pa.Table) -> Section:
    """The section of queues."""
    about = (
        "Every message of a queue is recorded, whatever is sampled. Lag is what is in a queue and "
        "not done at the end of a minute; age how long messages waited to be handed out."
    )
    if not table.num_rows:
        return Section("Queues", about)
    span = Span.of(table)
    rows = _stepped(table, span)
    weights: dict[str, float] = {}
    for row in rows:
        weights[row["name"]] = weights.get(row["name"], 0) + row["stored"] + row["acked"]
    shown = largest(weights)
    return Section("Queues", about, [_figure(rows, span, shown)], _totals(rows))


def _stepped(table: pa.Table, span: Span) -> list[dict[str, Any]]:
    sums = [(name, "sum") for name in (*_COUNTED, "lent", "purged", "cancelled", "replayed")]
    counted = (
        span.stepped(table.sort_by("window"))
        .group_by(["app", "queue", "step"], use_threads=False)
        .aggregate([*sums, ("lag", "last"), ("age_p99", "max"), ("age_max", "max")])
    )
    rows: list[dict[str, Any]] = counted.to_pylist()
    for row in rows:
        row["name"] = f"{row['app']} {row['queue']}"
        row |= {name: row[f"{name}_sum"] or 0 for name, _sum in sums}
    return rows


def _figure(rows: list[dict[str, Any]], span: Span, shown: dict[str, str]) -> go.Figure:
    seconds = span.step_min * 60
    plots: dict[str, Callable[[dict[str, Any]], float | None]] = {
        "stored a second": lambda row: row["stored"] / seconds,
        "done a second": lambda row: row["acked"] / seconds,
        "lag, in messages": lambda row: row["lag_last"],
        "age, 99 of 100": lambda row: (
            None if row["age_p99_max"] is None else row["age_p99_max"] / 1e6
        ),
        "tried again a second": lambda row: row["returned"] / seconds,
        "dead letters": lambda row: row["died"],
    }
    figure = grid(list(plots), height=240)
    names = dict.fromkeys(shown.values())
    looks = colours(names)
    for place, (title, value) in enumerate(plots.items()):
        where = {"row": place // 2 + 1, "col": place % 2 + 1}
        for name in names:
            by_step: dict[int, float] = {}
            for row in rows:
                found = value(row)
                if shown[row["name"]] == name and found is not None:
                    by_step[row["step"]] = by_step.get(row["step"], 0) + found
            ys = [by_step.get(step) for step in span.steps]
            trace = line(span.times, ys, name, looks[name], showlegend=place == 0)
            figure.add_trace(trace, **where)
        figure.update_yaxes(
            rangemode="tozero", ticksuffix=" s" if title[:3] == "age" else "", **where
        )
    return figure


def _totals(rows: list[dict[str, Any]]) -> list[Any]:
    """A table of all queues."""
    heads = ("queue", "stored", "done", "tried again", "dead", "lag", "longest wait")
    found: dict[str, list[float]] = {}
    for row in sorted(rows, key=lambda row: (row["name"], row["step"])):
        sums = found.setdefault(row["name"], [0.0] * 6)
        for n, name in enumerate(_COUNTED):
            sums[n] += row[name]
        sums[4] = row["lag_last"] or 0
        sums[5] = max(sums[5], row["age_max_max"] or 0)
    lines = [
        (name, *(f"{count:,.0f}" for count in sums[:5]), f"{sums[5] / 1e6:,.3f} s")
        for name, sums in found.items()
    ]
    return [heads, *lines]
