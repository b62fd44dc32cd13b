"""How long messages took, and where."""

from __future__ import annotations

from typing import Final

import plotly.graph_objects as go
import pyarrow as pa
import pyarrow.compute as pc

from chappe.pipeline.report.chart import PALETTE, Section, colours, grid, line, plot
from chappe.pipeline.report.sketches import Sketch, exploded, sketches
from chappe.pipeline.report.span import Span
from chappe.pipeline.sketch import time_of

# Of each family the step that its people wait for.
WHOLE: Final = {
    ("send", "delivery"): "to users",
    ("topic", "delivery"): "to topics",
    ("queue", "wait"): "in queues, until handed out",
    ("request", "answer"): "requests, until answered",
}
_SHARES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
# Of a heat map, how many of the sketches' buckets one cell is high.
_CELL: Final = 12


def section(table: pa.Table) -> Section:
    """The section of latency."""
    about = (
        "From when a message came to its first node until it was in the last receiver's outbox; of "
        "a queue, from when it was durable and due until a consumer had it. All axes of time are "
        "logarithmic; percentiles are right within 1 %."
    )
    if not table.num_rows:
        return Section("Latency", about)
    span = Span.of(table)
    return Section(
        "Latency",
        about,
        [_over_time(table, span), _heat(table, span), _slower(table), _hops(table)],
    )


def whole(table: pa.Table) -> pa.Table:
    """The rows of those steps that people wait for."""
    masks = [
        pc.and_(pc.equal(table["family"], family), pc.equal(table["hop"], hop))
        for family, hop in WHOLE
    ]
    mask = masks[0]
    for other in masks[1:]:
        mask = pc.or_(mask, other)
    return table.filter(mask)


def _over_time(table: pa.Table, span: Span) -> go.Figure:
    """Percentiles over time, for each family a plot."""
    found = sketches(span.stepped(whole(table)), ["family", "hop", "step"])
    present = [key for key in WHOLE if any(known[:2] == key for known in found)]
    figure = grid([WHOLE[key] for key in present] or ["nothing"])
    looks = colours(_SHARES)
    for place, key in enumerate(present):
        of_step = [found.get((*key, step), Sketch([], [])) for step in span.steps]
        for name, share in _SHARES.items():
            ys = [sketch.percentile_ms(share) for sketch in of_step]
            trace = line(span.times, ys, name, looks[name], showlegend=place == 0)
            figure.add_trace(trace, row=place // 2 + 1, col=place % 2 + 1)
    figure.update_yaxes(type="log", ticksuffix=" ms", exponentformat="none")
    return figure


def _heat(table: pa.Table, span: Span) -> go.Figure:
    """All of them over time: what percentiles hide, such as two humps, is seen here."""
    rows = exploded(span.stepped(whole(table)), ["step"])
    cell = pc.cast(pc.floor(pc.divide(pc.cast(rows["bucket"], pa.float64()), _CELL)), pa.int64())
    counted = (
        rows.append_column("cell", cell).group_by(["step", "cell"]).aggregate([("count", "sum")])
    )
    counts = {(row["step"], row["cell"]): row["count_sum"] for row in counted.to_pylist()}
    cells = [cell for _step, cell in counts]
    heights = list(range(min(cells, default=0), max(cells, default=0) + 1))
    figure = plot("How many messages took how long", height=340)
    figure.add_trace(
        go.Heatmap(
            x=span.times,
            y=[time_of(height * _CELL + _CELL // 2) / 1000 for height in heights],
            z=[[counts.get((step, height)) for step in span.steps] for height in heights],
            colorscale="Viridis",
            hovertemplate="%{x}<br>%{y:.3g} ms: %{z:,} messages<extra></extra>",
        )
    )
    figure.update_yaxes(type="log", ticksuffix=" ms", exponentformat="none")
    figure.update_layout(hovermode="closest")
    return figure


def _slower(table: pa.Table) -> go.Figure:
    """Which share took longer than a time: the tail, which is what people feel."""
    figure = plot("Which share took longer", height=340)
    found = sketches(whole(table), ["family", "hop"])
    for n, (key, sketch) in enumerate(found.items()):
        xs, ys = sketch.slower()
        figure.add_trace(line(xs, ys, WHOLE[key], PALETTE[n], line={"shape": "hv"}))
    figure.update_xaxes(type="log", ticksuffix=" ms", exponentformat="none")
    figure.update_yaxes(type="log", tickformat=".4~p")
    return figure


def _hops(table: pa.Table) -> go.Figure:
    """Where the time goes: each hop's median and its worst per cent."""
    found = sketches(table, ["family", "hop", "role"])
    figure = plot("Where the time goes", height=60 + 26 * len(found))
    names = [
        f"{family}: {hop}" if role == "whole" else f"{family}: {hop}, {role}"
        for family, hop, role in found
    ]
    for n, (name, share) in enumerate(list(_SHARES.items())[::-1]):
        xs = [sketch.percentile_ms(share) for sketch in found.values()]
        figure.add_trace(
            go.Scatter(
                x=xs,
                y=names,
                name=name,
                mode="markers",
                marker={
                    "size": 11,
                    "symbol": "line-ns-open",
                    "color": PALETTE[n],
                    "line": {"width": 3},
                },
                hovertemplate="%{x:.3g} ms",
            )
        )
    figure.update_xaxes(type="log", ticksuffix=" ms", exponentformat="none")
    figure.update_yaxes(autorange="reversed", automargin=True)
    figure.update_layout(hovermode="y unified")
    return figure
