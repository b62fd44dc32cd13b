"""How long messages took, and where."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import Final

import plotly.graph_objects as go
import pyarrow as pa
import pyarrow.compute as pc

from chappe.pipeline.kinds import PUSH, TRAVELLING
from chappe.pipeline.report.chart import (
    Drawing,
    Section,
    colours,
    plot,
    safe,
    time_axis,
    timed,
    timed_lines,
    told_ms,
)
from chappe.pipeline.report.sketches import NOTHING, sketches
from chappe.pipeline.report.span import Span
from chappe.pipeline.sketch import time_of

_FAMILIES: Final = {
    family: "user" if family == "send" else family
    for family in ("send", "topic", "queue", "request", *TRAVELLING)
} | {PUSH: "device"}
# Of each family the step that its people wait for.
WHOLE: Final = {
    **{(f, "delivery"): f"to {word}s" for f, word in _FAMILIES.items() if f in TRAVELLING},
    ("queue", "wait"): "in queues, until handed out",
    ("request", "answer"): "requests, until answered",
    (PUSH, "arrival"): "to devices that are online, until acknowledged",
}
# All steps in the order in which a message goes through them, and what they are called.
_HOPS: Final = {
    ("hub", "origin"): "first node",
    ("link", "relay"): "link to a relay",
    ("hub", "relay"): "relay",
    ("link", "last"): "link to the last",
    ("hub", "last"): "last node",
    ("delivery", "whole"): "all of it",
    ("store", "whole"): "until on disk",
    ("wait", "whole"): "until handed out",
    ("work", "whole"): "until acknowledged",
    ("done", "whole"): "all of it",
    ("answer", "whole"): "until answered",
    ("arrival", "whole"): "all of it",
}
_SHARES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
# Of a heat map, how many of the sketches' buckets one cell is high.
_CELL: Final = 12


def section(times: pa.Table, span: Span) -> Section:
    """The section of latency, of times that were flattened."""
    made = Section(
        "Latency",
        "From when a message came to its first node until it was in the last receiver's outbox; of "
        "a queue, from when it was durable and due until a consumer had it. Half of all took no "
        "longer than p50, 99 of 100 no longer than p99. Axes of times are logarithmic; "
        "percentiles are right within 1 %.",
        "No message was recorded: none was sent, or events.share of the nodes is 0.",
    )
    if times.num_rows:
        made.drawings.extend(_over_time(times, span))
        made.drawings.append(_hops(times))
        made.drawings.extend(_hops_over_time(times, span))
        made.drawings.extend([_heat(times, span), _slower(times)])
    return made


def _whole(times: pa.Table) -> pa.Table:
    """Those of the steps that people wait for."""
    masks = [
        pc.and_(pc.equal(times["family"], family), pc.equal(times["hop"], hop))
        for family, hop in WHOLE
    ]
    return times.filter(reduce(pc.or_, masks))


def _over_time(times: pa.Table, span: Span) -> Iterator[Drawing]:
    """Percentiles over time, for each family a plot."""
    found = sketches(_whole(times), ["family", "hop", "step"])
    looks = colours(_SHARES)
    for key, title in WHOLE.items():
        of_step = [found.get((*key, step), NOTHING) for step in span.steps]
        if any(sketch.total for sketch in of_step):
            series = {
                name: [sketch.percentile_ms(share) for sketch in of_step]
                for name, share in _SHARES.items()
            }
            yield timed_lines(title, span, series, looks)


def _hops_over_time(times: pa.Table, span: Span) -> Iterator[Drawing]:
    """How each step changed: its median and its worst per cent."""
    found = sketches(times, ["family", "hop", "role", "step"])
    present = {key[:3] for key in found}
    for family, word in _FAMILIES.items():
        steps = {hop: title for hop, title in _HOPS.items() if (family, *hop) in present}
        # A single step is all of it, and was shown.
        if len(steps) < 2:
            continue
        looks = colours(steps.values())
        for name in ("p50", "p99"):
            series = {
                title: [
                    found.get((family, *hop, step), NOTHING).percentile_ms(_SHARES[name])
                    for step in span.steps
                ]
                for hop, title in steps.items()
            }
            yield timed_lines(f"{name} of each step, to a {word}", span, series, looks)


def _heat(times: pa.Table, span: Span) -> Drawing:
    """All of them over time: what percentiles hide, such as two humps, is seen here."""
    rows = _whole(times)
    cell = pc.cast(pc.floor(pc.divide(pc.cast(rows["bucket"], pa.float64()), _CELL)), pa.int64())
    counted = (
        rows.append_column("cell", cell).group_by(["step", "cell"]).aggregate([("count", "sum")])
    )
    counts = {(row["step"], row["cell"]): row["count_sum"] for row in counted.to_pylist()}
    cells = [cell for _step, cell in counts]
    heights = list(range(min(cells, default=0), max(cells, default=0) + 1))
    middles = [time_of(height * _CELL + _CELL // 2) / 1000 for height in heights]
    figure = plot(height=340)
    figure.add_trace(
        go.Heatmap(
            x=span.times,
            y=middles,
            z=[[counts.get((step, height)) for step in span.steps] for height in heights],
            colorscale="Cividis",
            xperiod=span.step_min * 60_000,
            xperiodalignment="middle",
            customdata=[[told_ms(time)] * len(span.steps) for time in middles],
            hovertemplate="%{x}<br>about %{customdata}: %{z:,} messages<extra></extra>",
            colorbar={"title": {"text": "messages"}, "thickness": 12, "outlinewidth": 0},
        )
    )
    figure.update_yaxes(**time_axis(middles))
    figure.update_layout(hovermode="closest")
    return Drawing("how many took how long", timed(figure, span))


def _slower(times: pa.Table) -> Drawing:
    """Which share took longer than a time: the tail, which is what people feel."""
    found = sketches(_whole(times), ["family", "hop"])
    looks = colours(WHOLE.values())
    figure = plot(height=340)
    known: list[float] = []
    for key, sketch in found.items():
        xs, ys = sketch.slower()
        known += xs
        look = {"shape": "hv", "color": looks[WHOLE[key]], "width": 2}
        figure.add_trace(go.Scatter(x=xs, y=ys, name=WHOLE[key], mode="lines", line=look))
    figure.update_xaxes(hoverformat=".3~g", tickangle=0, **time_axis(known))
    figure.update_yaxes(type="log", tickformat=".4~p", dtick=1)
    return Drawing("which share took longer than", figure)


def _hops(times: pa.Table) -> Drawing:
    """Where the time goes: each step from its median to its worst."""
    found = sketches(times, ["family", "hop", "role"])
    keys = [(f, *hop) for f in _FAMILIES for hop in _HOPS if (f, *hop) in found]
    names = [f"{_FAMILIES[family]}: {_HOPS[hop, role]}" for family, hop, role in keys]
    looks = colours(_SHARES)
    figure = plot(height=110 + 26 * len(keys))
    percentiles = {
        name: [found[key].percentile_ms(share) for key in keys] for name, share in _SHARES.items()
    }
    ends: list[float | None] = []
    for low, high in zip(percentiles["p50"], percentiles["p99.9"], strict=True):
        ends += [low, high, None]
    figure.add_trace(
        go.Scatter(
            x=ends,
            y=[name for name in names for _ in range(3)],
            mode="lines",
            line={"color": "rgba(128,140,150,0.45)", "width": 5},
            hoverinfo="skip",
            showlegend=False,
        )
    )
    for name, xs in percentiles.items():
        figure.add_trace(
            go.Scatter(
                x=xs,
                y=[safe(one) for one in names],
                name=name,
                mode="markers",
                marker={"size": 10, "color": looks[name]},
                customdata=[told_ms(x) for x in xs],
                hovertemplate="%{customdata}",
            )
        )
    known = [x for xs in percentiles.values() for x in xs]
    figure.update_xaxes(tickangle=0, **time_axis(known))
    figure.update_yaxes(autorange="reversed", type="category")
    figure.update_layout(hovermode="y unified", legend={"y": -0.08})
    return Drawing("where the time goes", figure, wide=True)
