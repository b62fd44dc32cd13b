"""What went into queues, what came out, and what stayed."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

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

Sums = dict[tuple[str, int], dict[str, float | None]]


def section(table: pa.Table, span: Span) -> Section:
    """The section of queues, of a table in steps."""
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
    table = _named(table)
    totals = _totals(table)
    weights = {row["name"]: row["stored_sum"] + row["acked_sum"] for row in totals}
    shown = largest(weights)
    names = list(dict.fromkeys(shown.values()))
    sums, looks = _summed(table, shown), colours(names)

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
    made.rows.extend(_listed(totals, weights))
    return made


def _named(table: pa.Table) -> pa.Table:
    """With a `name` for each queue; of one app alone the app's tells nothing."""
    queue = pc.fill_null(table["queue"], "None")
    if len(table["app"].unique()) > 1:
        queue = pc.binary_join_element_wise(pc.fill_null(table["app"], "None"), queue, " ")
    for name in _COUNTED:
        filled = pc.fill_null(table[name], 0)
        table = table.set_column(table.column_names.index(name), name, filled)
    return table.append_column("name", queue)


def _summed(table: pa.Table, shown: dict[str, str]) -> Sums:
    """What each line of a plot has at each step."""
    lines = pa.array([shown[name] for name in table["name"].to_pylist()], pa.string())
    columns = {**dict.fromkeys((*_COUNTED, "lag"), "sum"), "age_p99": "max"}
    rows = (
        table.append_column("line", lines).group_by(["line", "step"]).aggregate([*columns.items()])
    ).to_pylist()
    return {
        (row["line"], row["step"]): {
            **{name: row[f"{name}_sum"] for name in _COUNTED},
            "lag": row["lag_sum"] or 0,
            "age": row["age_p99_max"],
        }
        for row in rows
    }


def _totals(table: pa.Table) -> list[dict[str, Any]]:
    """What there was of each queue in all."""
    rows: list[dict[str, Any]] = (
        table.sort_by("step")
        .group_by("name", use_threads=False)
        .aggregate([*((name, "sum") for name in _COUNTED), ("lag", "last"), ("age_max", "max")])
        .to_pylist()
    )
    return rows


def _listed(totals: list[dict[str, Any]], weights: dict[str, float]) -> list[Any]:
    """A table of queues, those with the most to do before all others."""
    heads = ("queue", "stored", "done", "handed back", "dead", "depth", "longest wait")
    ranked = sorted(totals, key=lambda row: (-weights[row["name"]], row["name"]))
    counts = [*(f"{name}_sum" for name in _COUNTED), "lag_last"]
    told = [
        (
            row["name"],
            *(f"{row[name] or 0:,.0f}" for name in counts),
            told_ms((row["age_max_max"] or 0) / 1000),
        )
        for row in ranked[:_ROWS_MAX]
    ]
    if len(ranked) > _ROWS_MAX:
        told.append((f"and {len(ranked) - _ROWS_MAX:,} more", *[""] * 6))
    return [heads, *told]
