"""What was lost, came twice or late, or is not known: message by message."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import plotly.graph_objects as go
import pyarrow as pa
import pyarrow.compute as pc

from chappe.pipeline.report.chart import BAD, DOUBT, QUIET, Drawing, Section, plot, rates, safe
from chappe.pipeline.report.gold import Gold, bounds, minutes
from chappe.pipeline.report.span import Span, clock
from chappe.pipeline.report.tally import Tally
from chappe.pipeline.schema import TABLES, arrow_schema

VERDICTS: Final[dict[str, str]] = {
    "lost": BAD,
    "duplicated": "#cc79a7",
    "late": DOUBT,
    "unknown": QUIET,
}
_COLUMNS: Final = (
    *("verdict", "family", "message", "label", "sender", "target", "reason"),
    *("node", "at", "born", "app"),
)
_COUNTED: Final = pa.schema(
    [
        *((name, pa.string()) for name in ("verdict", "family", "reason")),
        *((name, pa.int64()) for name in ("step", "rows")),
    ]
)
# Rows on the page; the table has all.
_ROWS_MAX: Final = 200
_REASONS_MAX: Final = 20
_REASON_MAX: Final = 48
# A reason tells how long something took; to count reasons, all of those are one.
_NUMBERS: Final = r"(^| )\d[\d.,]*\b"


class Audit(NamedTuple):
    """What of the table is shown."""

    rows: int
    # How many messages there are of each verdict; what is said of a node is of none.
    counts: dict[str, int]
    # How many rows there are of each verdict and step, and of each verdict, family and reason.
    births: pa.Table
    whys: pa.Table
    # The first rows, the worst before all others.
    listed: pa.Table
    # A message of each verdict.
    samples: dict[str, dict[str, Any]]


def windows(gold: Gold) -> Iterator[int]:
    """The first and the last minute of parts of the table."""
    for _hour, part in _parts(gold, ("born", "at")):
        yield from bounds(part)


def gather(gold: Gold, span: Span) -> Audit:
    """Read the table."""
    births = Tally(["verdict", "step"], {"rows": "sum"})
    whys = Tally(["verdict", "family", "reason"], {"rows": "sum"})
    counts = dict.fromkeys(VERDICTS, 0)
    samples: dict[str, dict[str, Any]] = {}
    listed: list[pa.Table] = []
    rows = 0
    for hour, part in _parts(gold, _COLUMNS):
        rows += part.num_rows
        ones = part.append_column("rows", pa.array([1] * part.num_rows, pa.int64()))
        births.add(span.stepped(ones))
        plain = pc.replace_substring_regex(part["reason"], _NUMBERS, r"\1…")
        whys.add(ones.set_column(ones.column_names.index("reason"), "reason", plain))
        listed = [_first(pa.concat_tables([*listed, part]))]
        messages = part.filter(pc.or_(pc.is_valid(part["message"]), pc.is_valid(part["label"])))
        for verdict in VERDICTS:
            found = messages.filter(pc.equal(messages["verdict"], verdict))
            counts[verdict] += found.num_rows
            for row in found.slice(0, 1).to_pylist():
                samples.setdefault(verdict, {"hour": hour, **row})
    return Audit(
        rows,
        counts,
        births.table(_COUNTED),
        whys.table(_COUNTED),
        listed[0] if listed else arrow_schema(TABLES["audit"]).empty_table(),
        {verdict: samples[verdict] for verdict in VERDICTS if verdict in samples},
    )


def _parts(gold: Gold, columns: Sequence[str]) -> Iterator[tuple[str, pa.Table]]:
    """Rows with `window`: the minute in which each was born, or else last seen."""
    for hour, part in gold.hourly("audit", columns):
        window = minutes(pc.coalesce(part["born"], part["at"]))
        yield hour, gold.period.within(part.append_column("window", window))


def _first(rows: pa.Table) -> pa.Table:
    """As many as are listed, the worst before all others."""
    order = pc.index_in(rows["verdict"], pa.array(VERDICTS))
    ranked = rows.append_column("order", order).sort_by(
        [("order", "ascending"), ("born", "ascending"), ("message", "ascending")]
    )
    return ranked.slice(0, _ROWS_MAX).drop_columns("order")


def section(audit: Audit, span: Span) -> Section:
    """The section of the audit."""
    made = Section(
        "Audit",
        "Every message that did not simply arrive, and where it was last seen. For queues and "
        "requests this is exact; for topics and users, what a killed node did not tell any more "
        "is unknown.",
        "Nothing to name: every message that was recorded arrived once, and in time.",
    )
    if audit.rows:
        made.drawings.extend([_births(audit, span), _whys(audit)])
        made.rows.extend(_listed(audit))
    return made


def _births(audit: Audit, span: Span) -> Drawing:
    born = {(row["verdict"], row["step"]): row["rows"] for row in audit.births.to_pylist()}
    present = {verdict for verdict, _step in born}
    series = {
        verdict: [born.get((verdict, step), 0) for step in span.steps]
        for verdict in VERDICTS
        if verdict in present
    }
    return rates("when they were born", span, series, VERDICTS)


def _whys(audit: Audit) -> Drawing:
    columns = (audit.whys[name].to_pylist() for name in ("verdict", "family", "reason", "rows"))
    whys = sorted(zip(*columns, strict=True), key=lambda why: -why[-1])[:_REASONS_MAX]
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


def _listed(audit: Audit) -> list[Sequence[str]]:
    heads = ("verdict", "id", "kind", "from", "to", "why", "last seen on", "at (UTC)")
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
        for row in audit.listed.to_pylist()
    ]
    if audit.rows > _ROWS_MAX:
        lines.append((f"and {audit.rows - _ROWS_MAX:,} more", *[""] * 7))
    return [heads, *lines]
