"""What was lost, came twice or late, or is not known: message by message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import plotly.graph_objects as go
import pyarrow as pa
import pyarrow.compute as pc

from chappe.pipeline.report.chart import BAD, DOUBT, QUIET, Drawing, Section, plot, rates, safe
from chappe.pipeline.report.span import MINUTE_US, Span, clock

VERDICTS: Final = {"lost": BAD, "duplicated": "#cc79a7", "late": DOUBT, "unknown": QUIET}
# Rows on the page; the table has all.
_ROWS_MAX: Final = 200
_REASONS_MAX: Final = 20
_REASON_MAX: Final = 48
# A reason tells how long something took; to count reasons, all of those are one.
_NUMBERS: Final = r"(^| )\d[\d.,]*\b"


def section(table: pa.Table, span: Span) -> Section:
    """The section of the audit."""
    made = Section(
        "Audit",
        "Every message that did not simply arrive, and where it was last seen. For queues and "
        "requests this is exact; for topics and users, what a killed node did not tell any more "
        "is unknown.",
        "Nothing to name: every message that was recorded arrived once, and in time.",
    )
    if table.num_rows:
        made.drawings.extend([_births(table, span), _whys(table)])
        made.rows.extend(_listed(table))
    return made


def counts(table: pa.Table) -> dict[str, int]:
    """How many messages there are of each verdict; what is said of a node is of none."""
    messages = table.filter(named(table))
    found = dict(zip(*_counted(messages, ["verdict"]), strict=True))
    return {verdict: found.get(verdict, 0) for verdict in VERDICTS}


def named(table: pa.Table) -> pa.ChunkedArray:
    """Which rows are of a message."""
    return pc.or_(pc.is_valid(table["message"]), pc.is_valid(table["label"]))


def births(table: pa.Table) -> pa.Table:
    """The table with `window`: the minute in which each was born, or else last seen."""
    born = pc.coalesce(table["born"], table["at"])
    return table.append_column("window", pc.multiply(pc.divide(born, MINUTE_US), MINUTE_US))


def _births(table: pa.Table, span: Span) -> Drawing:
    stepped = span.stepped(births(table))
    born = {
        (v, step): n for v, step, n in zip(*_counted(stepped, ["verdict", "step"]), strict=True)
    }
    present = {verdict for verdict, _step in born}
    series = {
        verdict: [born.get((verdict, step), 0) for step in span.steps]
        for verdict in VERDICTS
        if verdict in present
    }
    return rates("when they were born", span, series, VERDICTS)


def _whys(table: pa.Table) -> Drawing:
    plain = pc.replace_substring_regex(table["reason"], _NUMBERS, r"\1…")
    rows = table.set_column(table.column_names.index("reason"), "reason", plain)
    whys = list(zip(*_counted(rows, ["verdict", "family", "reason"]), strict=True))
    whys = sorted(whys, key=lambda why: -why[-1])[:_REASONS_MAX]
    figure = plot(height=max(300, 60 + 24 * len(whys)), barmode="stack")
    for verdict, colour in VERDICTS.items():
        reasons = [(f"{family}: {why or verdict}", n) for v, family, why, n in whys if v == verdict]
        bars = go.Bar(
            # Names beside a bar would leave it no room on a narrow page.
            y=[f"{verdict} {n}" for n in range(len(reasons))],
            x=[n for _why, n in reasons],
            text=[safe(_short(why)) for why, _n in reasons],
            textposition="auto",
            insidetextanchor="start",
            insidetextfont={"color": "#11161c"},
            orientation="h",
            name=verdict,
            marker={"color": colour},
            hovertext=[safe(why) for why, _n in reasons],
            hovertemplate="%{hovertext}: %{x:,}<extra></extra>",
        )
        if reasons:
            figure.add_trace(bars)
    figure.update_layout(hovermode="closest", showlegend=True)
    figure.update_yaxes(autorange="reversed", showticklabels=False)
    figure.update_xaxes(rangemode="tozero", exponentformat="none", separatethousands=True)
    return Drawing("why", figure)


def _short(text: str) -> str:
    return text if len(text) <= _REASON_MAX else text[: _REASON_MAX - 1] + "…"


def _listed(table: pa.Table) -> list[Sequence[str]]:
    """The first of them, the worst before all others."""
    heads = ("verdict", "id", "kind", "from", "to", "why", "last seen on", "at (UTC)")
    order = pc.index_in(table["verdict"], pa.array(VERDICTS))
    ranked = table.append_column("order", order).sort_by(
        [("order", "ascending"), ("born", "ascending"), ("message", "ascending")]
    )
    lines: list[Sequence[str]] = [
        (
            row["verdict"],
            row["label"] or ("" if row["message"] is None else str(row["message"])),
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
