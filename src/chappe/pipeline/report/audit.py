"""What was lost, came twice or late, or is not known: message by message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import plotly.graph_objects as go
import pyarrow as pa
import pyarrow.compute as pc

from chappe.pipeline.report.chart import BAD, DOUBT, QUIET, Section, grid, safe
from chappe.pipeline.report.span import MINUTE_US, Span, clock

VERDICTS: Final = {"lost": BAD, "duplicated": "#cc79a7", "late": DOUBT, "unknown": QUIET}
# Rows on the page; the table has all.
_ROWS_MAX: Final = 200
_REASONS_MAX: Final = 20


def section(table: pa.Table) -> Section:
    """The section of the audit."""
    about = (
        "Every message that did not simply arrive, and where it was last seen. For queues and "
        "requests this is exact; for topics, what a killed node did not tell any more is unknown. "
        "`chappe trace ID` shows the whole way of any of them."
    )
    if not table.num_rows:
        return Section("Audit", about)
    return Section("Audit", about, [_figure(table)], _listed(table))


def counts(table: pa.Table) -> dict[str, int]:
    """How many there are of each verdict."""
    found = dict(zip(*_counted(table, ["verdict"]), strict=True))
    return {verdict: found.get(verdict, 0) for verdict in VERDICTS}


def _figure(table: pa.Table) -> go.Figure:
    figure = grid(["when they were born", "why"], height=280)
    minutes = table.append_column("window", _floored(table["born"], MINUTE_US))
    span = Span.of(minutes)
    stepped = span.stepped(minutes)
    born = {
        (v, step): n for v, step, n in zip(*_counted(stepped, ["verdict", "step"]), strict=True)
    }
    whys = list(zip(*_counted(table, ["verdict", "family", "reason"]), strict=True))
    whys = sorted(whys, key=lambda why: -why[-1])[:_REASONS_MAX]
    for verdict, number in counts(table).items():
        if not number:
            continue
        looks = {
            "name": verdict,
            "marker": {"color": VERDICTS[verdict]},
            "legendgroup": verdict,
        }
        bars = go.Bar(
            x=span.times, y=[born.get((verdict, step), 0) for step in span.steps], **looks
        )
        figure.add_trace(bars, row=1, col=1)
        reasons = [(f"{family}: {why or verdict}", n) for v, family, why, n in whys if v == verdict]
        sideways = go.Bar(
            y=[safe(why) for why, _n in reasons],
            x=[n for _why, n in reasons],
            orientation="h",
            showlegend=False,
            **looks,
        )
        figure.add_trace(sideways, row=1, col=2)
    figure.update_layout(barmode="stack", hovermode="closest")
    figure.update_yaxes(automargin=True, row=1, col=2)
    return figure


def _listed(table: pa.Table) -> list[Sequence[str]]:
    """The first of them, the worst before all others."""
    heads = ("verdict", "id", "kind", "from", "to", "why", "last seen on", "at")
    order = pc.index_in(table["verdict"], pa.array(VERDICTS))
    ranked = table.append_column("order", order).sort_by(
        [("order", "ascending"), ("born", "ascending"), ("message", "ascending")]
    )
    lines: list[Sequence[str]] = [
        (
            row["verdict"],
            row["label"] or str(row["message"]),
            row["family"] or "",
            row["sender"] or "",
            row["target"] or "",
            row["reason"] or "",
            row["node"] or "",
            "" if row["at"] is None else clock(row["at"]),
        )
        for row in ranked.slice(0, _ROWS_MAX).to_pylist()
    ]
    if table.num_rows > _ROWS_MAX:
        lines.append((f"and {table.num_rows - _ROWS_MAX:,} more", *[""] * 7))
    return [heads, *lines]


def _counted(table: pa.Table, keys: list[str]) -> list[list[Any]]:
    """The keys there are, and how many rows of each, as columns."""
    found = table.group_by(keys).aggregate([([], "count_all")])
    return [found[name].to_pylist() for name in (*keys, "count_all")]


def _floored(times: pa.ChunkedArray, step_us: int) -> pa.ChunkedArray:
    return pc.multiply(pc.divide(times, step_us), step_us)
