"""How nodes reached each other."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go
import pyarrow as pa

from chappe.pipeline.report.chart import Section, colours, grid, largest, line, plot, safe, shares
from chappe.pipeline.report.span import Span


def section(table: pa.Table) -> Section:
    """The section of links."""
    about = (
        "What each node handed to each other one, and how much of it arrived there; how long that "
        "took, by clocks corrected with what the links' own beats say of them."
    )
    if not table.num_rows:
        return Section("Links", about)
    span = Span.of(table)
    return Section("Links", about, [_matrix(table), _over_time(table, span)])


def _matrix(table: pa.Table) -> go.Figure:
    """Every pair at a glance: from, to, and how much arrived."""
    pairs = (
        table.group_by(["node", "peer"])
        .aggregate([("handed", "sum"), ("arrived", "sum"), ("downs", "sum"), ("down_us", "sum")])
        .to_pylist()
    )
    nodes = sorted({row["node"] for row in pairs} | {row["peer"] for row in pairs})
    found = {(row["node"], row["peer"]): row for row in pairs}
    figure = plot("Arrived, of what was handed over", height=120 + 40 * len(nodes))
    figure.add_trace(
        go.Heatmap(
            x=[safe(f"to {peer}") for peer in nodes],
            y=[safe(node) for node in nodes],
            z=[[_success(found.get((node, peer))) for peer in nodes] for node in nodes],
            text=[[_told(found.get((node, peer))) for peer in nodes] for node in nodes],
            texttemplate="%{text}",
            hovertemplate="%{y} %{x}<br>%{text}<extra></extra>",
            # Nothing but almost all is good enough for a link.
            zmin=99,
            zmax=100,
            colorscale=[[0, "#d55e00"], [0.9, "#f3e3a1"], [1, "#7fceb5"]],
            showscale=False,
            xgap=3,
            ygap=3,
        )
    )
    figure.update_layout(hovermode="closest")
    figure.update_yaxes(autorange="reversed", automargin=True)
    return figure


def _success(row: dict[str, Any] | None) -> float | None:
    return None if row is None else shares(row["arrived_sum"] or 0, row["handed_sum"] or 0)


def _told(row: dict[str, Any] | None) -> str:
    success = _success(row)
    if row is None:
        return ""
    told = "nothing handed over" if success is None else f"{success:.4g} % of {row['handed_sum']:,}"
    downs = row["downs_sum"] or 0
    return told + (
        f"<br>down {downs} times, {(row['down_us_sum'] or 0) / 1e6:,.1f} s" if downs else ""
    )


def _over_time(table: pa.Table, span: Span) -> go.Figure:
    rows: list[dict[str, Any]] = (
        span.stepped(table.sort_by("window"))
        .group_by(["node", "peer", "step"], use_threads=False)
        .aggregate(
            [
                ("handed", "sum"),
                ("delay_p99", "max"),
                ("round_trip", "min"),
                ("ahead", "last"),
                ("down_us", "sum"),
            ]
        )
        .to_pylist()
    )
    weights: dict[str, float] = {}
    for row in rows:
        row["name"] = f"{row['node']} > {row['peer']}"
        weights[row["name"]] = weights.get(row["name"], 0) + (row["handed_sum"] or 0)
    shown = largest(weights)
    plots = {
        "delay, 99 of 100": ("delay_p99_max", " ms", 1e3),
        "least round trip of a beat": ("round_trip_min", " ms", 1e3),
        "the other's clock is ahead by": ("ahead_last", " ms", 1e3),
        "down": ("down_us_sum", " s", 1e6),
    }
    figure = grid(list(plots), height=240)
    # A line for each pair; of more pairs than can be told apart, those with the most to carry.
    names = [name for name, kept in shown.items() if kept == name]
    looks = colours(names)
    for place, (column, suffix, unit) in enumerate(plots.values()):
        where = {"row": place // 2 + 1, "col": place % 2 + 1}
        for name in names:
            at = {row["step"]: row[column] for row in rows if row["name"] == name}
            ys = [None if at.get(step) is None else at[step] / unit for step in span.steps]
            trace = line(span.times, ys, name, looks[name], showlegend=place == 0)
            figure.add_trace(trace, **where)
        figure.update_yaxes(ticksuffix=suffix, **where)
    return figure
