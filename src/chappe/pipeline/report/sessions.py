"""Who was connected, and how often they came and went."""

from __future__ import annotations

from typing import Any, Final

import plotly.graph_objects as go
import pyarrow as pa

from chappe.pipeline.report.chart import Section, colours, grid, line, safe
from chappe.pipeline.report.span import Span

_PLOTS: Final = ("online", "opened a minute", "closed a minute", "came back within a minute")


def section(table: pa.Table) -> Section:
    """The section of sessions."""
    about = (
        "Sessions at the end of each minute by the edge they came in through, and how they changed."
    )
    if not table.num_rows:
        return Section("Sessions", about)
    return Section("Sessions", about, [_figure(table, Span.of(table))])


def online(table: pa.Table, span: Span) -> dict[str, list[float]]:
    """How many were online in each step, by edge; who has no word of a step has not changed."""
    latest: dict[tuple[str, str], dict[int, int]] = {}
    for row in span.stepped(table.sort_by("window")).to_pylist():
        at = latest.setdefault((row["app"] or "", row["edge"] or ""), {})
        at[row["step"]] = row["online"] or 0
    found: dict[str, list[float]] = {}
    for (_app, edge), at in latest.items():
        count, totals = 0, found.setdefault(edge, [0.0] * len(span.steps))
        for n, step in enumerate(span.steps):
            count = at.get(step, count)
            totals[n] += count
    return found


def _figure(table: pa.Table, span: Span) -> go.Figure:
    figure = grid(_PLOTS, height=240)
    now = online(table, span)
    looks = colours(sorted(now))
    for edge in sorted(now):
        area = go.Scatter(
            x=span.times,
            y=now[edge],
            name=safe(edge),
            stackgroup="online",
            line={"color": looks[edge], "width": 1},
            legendgroup=safe(edge),
        )
        figure.add_trace(area, row=1, col=1)
    rows: list[dict[str, Any]] = (
        span.stepped(table)
        .group_by(["edge", "step"])
        .aggregate([("opened", "sum"), ("closed", "sum"), ("reconnects", "sum")])
        .to_pylist()
    )
    for place, name in enumerate(("opened", "closed", "reconnects"), start=1):
        for edge in sorted(now):
            at = {r["step"]: r[f"{name}_sum"] or 0 for r in rows if (r["edge"] or "") == edge}
            ys = [at.get(step, 0) / span.step_min for step in span.steps]
            trace = line(span.times, ys, edge, looks[edge], showlegend=False)
            figure.add_trace(trace, row=place // 2 + 1, col=place % 2 + 1)
    figure.update_yaxes(rangemode="tozero")
    return figure
