"""How much was sent, and how much of it arrived in time."""

from __future__ import annotations

import plotly.graph_objects as go
import pyarrow as pa

from chappe.pipeline.report.chart import Section, colours, grid, largest, line, safe, shares
from chappe.pipeline.report.span import Span


def section(table: pa.Table) -> Section:
    """The section of delivery."""
    about = (
        "Messages by the minute of their birth, and which share of them arrived, at all and within "
        "the time promised. What is sampled is scaled up to what there was."
    )
    if not table.num_rows:
        return Section("Delivery", about)
    span = Span.of(table)
    return Section("Delivery", about, [_by(table, span, "family"), _by(table, span, "app")])


def _by(table: pa.Table, span: Span, key: str) -> go.Figure:
    """Rates and shares over time, for each family or app a line."""
    counted = (
        span.stepped(table)
        .group_by([key, "step"])
        .aggregate([(name, "sum") for name in ("scaled", "messages", "delivered", "in_time")])
        .to_pylist()
    )
    weights: dict[str, float] = {}
    for row in counted:
        weights[row[key] or ""] = weights.get(row[key] or "", 0) + row["scaled_sum"]
    shown = largest(weights)
    looks = colours(dict.fromkeys(shown.values()))
    figure = grid([f"messages a second, by {key}", f"arrived in time, by {key}"])
    for name in dict.fromkeys(shown.values()):
        rows = [row for row in counted if shown[row[key] or ""] == name]
        rates = [_sum(rows, step, "scaled") / (span.step_min * 60) for step in span.steps]
        in_time = [
            shares(_sum(rows, step, "in_time"), _sum(rows, step, "messages")) for step in span.steps
        ]
        area = go.Scatter(
            x=span.times,
            y=rates,
            name=safe(name),
            stackgroup="rate",
            line={"color": looks[name], "width": 1},
            legendgroup=safe(name),
        )
        figure.add_trace(area, row=1, col=1)
        trace = line(span.times, in_time, name, looks[name], showlegend=False)
        figure.add_trace(trace, row=1, col=2)
    figure.update_yaxes(rangemode="tozero", row=1, col=1)
    figure.update_yaxes(ticksuffix=" %", row=1, col=2)
    return figure


def _sum(rows: list[dict[str, float]], step: int, name: str) -> float:
    return sum(row[f"{name}_sum"] for row in rows if row["step"] == step)
