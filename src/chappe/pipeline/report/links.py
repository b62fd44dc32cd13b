"""How nodes reached each other."""

from __future__ import annotations

from typing import Any, Final

import plotly.graph_objects as go
import pyarrow as pa
import pyarrow.compute as pc

from chappe.pipeline.report.chart import (
    Drawing,
    Section,
    colours,
    largest,
    lines,
    plot,
    safe,
    shares,
    told_ms,
)
from chappe.pipeline.report.span import Span

# Words fit into the cells of a matrix of so many nodes; of more there are colours.
_WORDS_MAX: Final = 6
# Nodes in the matrix; of more, those with the most to carry.
_NODES_MAX: Final = 60
_PLOTS: Final = {
    "delay: 99 of 100 took no longer than": ("delay_p99", " ms", 1e3),
    "shortest round trip of a beat": ("round_trip", " ms", 1e3),
    "the other's clock is ahead by": ("ahead", " ms", 1e3),
    "down": ("down_us", " s", 1e6),
}


def section(table: pa.Table, span: Span) -> Section:
    """The section of links, of a table in steps."""
    made = Section(
        "Links",
        "What each node handed to each other one, how much of it arrived there, and how long that "
        "took, by clocks corrected with what the links' own beats say of them.",
        "There were no links: a node that is alone has none.",
    )
    # What probes find between roles of one node is no link.
    table = table.filter(pc.not_equal(table["node"], table["peer"]))
    if table.num_rows:
        made.drawings.append(_matrix(table))
        made.drawings.extend(_over_time(table, span))
    return made


def _matrix(table: pa.Table) -> Drawing:
    """Every pair at a glance: from, to, and how much arrived."""
    pairs = (
        table.group_by(["node", "peer"])
        .aggregate(
            [
                ("handed", "sum"),
                ("arrived", "sum"),
                ("downs", "sum"),
                ("down_us", "sum"),
                ("delay_p99", "max"),
            ]
        )
        .to_pylist()
    )
    weights: dict[str, float] = {}
    for row in pairs:
        for end in (row["node"], row["peer"]):
            weights[end] = weights.get(end, 0) + (row["handed_sum"] or 0)
    nodes = sorted(sorted(weights, key=lambda node: (-weights[node], node))[:_NODES_MAX])
    found = {(row["node"], row["peer"]): row for row in pairs}
    figure = plot(height=90 + (58 if len(nodes) <= _WORDS_MAX else 22) * len(nodes))
    figure.add_trace(
        go.Heatmap(
            x=[safe(f"to {peer}") for peer in nodes],
            y=[safe(f"from {node}") for node in nodes],
            z=[[_success(found.get((node, peer))) for peer in nodes] for node in nodes],
            text=[[_told(found.get((node, peer))) for peer in nodes] for node in nodes],
            texttemplate="%{text}" if len(nodes) <= _WORDS_MAX else None,
            textfont={"color": "#1d2733"},
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
    figure.update_xaxes(side="top", showgrid=False, type="category")
    figure.update_yaxes(autorange="reversed", showgrid=False, type="category")
    return Drawing("arrived, of what was handed over", figure, wide=True)


def _success(row: dict[str, Any] | None) -> float | None:
    """In per cent; a pair that handed nothing over has failed at nothing."""
    return None if row is None else shares(row["arrived_sum"] or 0, row["handed_sum"] or 0)


def _told(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    success = _success(row)
    told = "nothing handed over" if success is None else f"{success:.4g} % of {row['handed_sum']:,}"
    if row["delay_p99_max"] is not None:
        told += f"<br>p99 {told_ms(row['delay_p99_max'] / 1000)}"
    downs = row["downs_sum"] or 0
    if downs:
        times = "once" if downs == 1 else f"{downs} times"
        told += f"<br>down {times}, {told_ms((row['down_us_sum'] or 0) / 1000)}"
    return told


def _over_time(table: pa.Table, span: Span) -> list[Drawing]:
    pairs = pc.binary_join_element_wise(table["node"], table["peer"], " → ")
    named = table.append_column("name", pairs)
    weights: dict[str, float] = {
        row["name"]: row["handed_sum"] or 0
        for row in named.group_by("name").aggregate([("handed", "sum")]).to_pylist()
    }
    # A line for each pair; of more pairs than can be told apart, those with the most to carry.
    names = [name for name, kept in largest(weights).items() if kept == name]
    looks = colours(names)
    by_name: dict[str, dict[int, dict[str, Any]]] = {name: {} for name in names}
    for row in named.filter(pc.is_in(pairs, pa.array(names, pa.string()))).to_pylist():
        by_name[row["name"]][row["step"]] = row
    made = []
    for title, (column, suffix, unit) in _PLOTS.items():
        series = {name: _scaled(by_name[name], span, column, unit) for name in names}
        made.append(lines(title, span, series, looks, ticksuffix=suffix, hoverformat=".3~f"))
    return made


def _scaled(
    at: dict[int, dict[str, Any]], span: Span, column: str, unit: float
) -> list[float | None]:
    known = [at.get(step, {}).get(column) for step in span.steps]
    return [None if value is None else value / unit for value in known]
