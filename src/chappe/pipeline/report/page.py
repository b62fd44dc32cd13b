"""The page: figures at a glance, then a section for each table; all of it in one file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from math import floor
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from plotly.offline import get_plotlyjs

from chappe.pipeline.report import audit, delivery, latency, links, queues, sessions
from chappe.pipeline.report.chart import Section, shares
from chappe.pipeline.report.sketches import Sketch, sketches
from chappe.pipeline.report.span import Span
from chappe.pipeline.report.style import STYLE
from chappe.pipeline.table import read

_SECTIONS: Final = {
    "delivery": delivery.section,
    "latency": latency.section,
    "queues": queues.section,
    "sessions": sessions.section,
    "links": links.section,
    "audit": audit.section,
}
_NOTHING: Final = '<p class="nothing">Nothing of this was recorded.</p>'
# The page carries all that it needs, and a browser is told to fetch nothing.
_POLICY: Final = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
)


def write(tables: Path, out: Path) -> int:
    """Write the page of these tables; it is there when it is whole, and not before.

    Returns how many bytes it has. Raises OSError.
    """
    found = {name: read(tables, name) for name in _SECTIONS}
    page = "".join(_page(found, read(tables, "quarantine", columns=["problem"]))).encode()
    aside = out.with_name(out.name + ".part")
    try:
        with aside.open("wb") as file:
            file.write(page)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(out)
    finally:
        aside.unlink(missing_ok=True)
    return len(page)


def _page(found: dict[str, pa.Table], aside: pa.Table) -> Iterator[str]:
    sections = {name: make(found[name]) for name, make in _SECTIONS.items()}
    span = Span.of(*(found[name] for name in _SECTIONS if name != "audit"))
    yield '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>Chappe: what happened</title><style>{STYLE}</style>"
    yield f"<script>{get_plotlyjs()}</script></head><body><header><h1>What happened</h1>"
    yield f"<p>{escape(span.told)}</p><nav>"
    for name, section in sections.items():
        yield f'<a href="#{name}">{escape(section.title)}</a>'
    yield '</nav></header><main><div class="tiles">'
    for value, words, looks in _tiles(found, aside.num_rows):
        yield f'<div class="tile {looks}"><b>{escape(value)}</b><span>{escape(words)}</span></div>'
    yield "</div>"
    for name, section in sections.items():
        yield from _section(name, section)
    yield "</main></body></html>\n"


def _section(name: str, section: Section) -> Iterator[str]:
    yield f'<section id="{name}"><h2>{escape(section.title)}</h2><p>{escape(section.about)}</p>'
    if not section.figures:
        yield _NOTHING
    for n, figure in enumerate(section.figures):
        yield figure.to_html(
            full_html=False,
            include_plotlyjs=False,
            div_id=f"{name}-{n}",
            config={"displaylogo": False, "responsive": True},
        )
    if section.rows:
        yield from _listed(section.rows)
    yield "</section>"


def _listed(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    heads, *lines = rows
    yield '<div class="wide"><table><thead><tr>'
    yield from (f"<th>{escape(head)}</th>" for head in heads)
    yield "</tr></thead><tbody>"
    for line in lines:
        yield "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>"
    yield "</tbody></table></div>"


def _tiles(found: dict[str, pa.Table], aside: int) -> Iterator[tuple[str, str, str]]:
    """Figures at a glance: value, words, and how it looks."""
    everything = found["delivery"]
    # What a queue holds back may be meant to wait: it has figures of its own.
    delivered = everything.filter(pc.not_equal(everything["family"], "queue"))
    messages, in_time = _sum(delivered, "messages"), _sum(delivered, "in_time")
    share = shares(in_time, messages)
    yield f"{_sum(everything, 'scaled'):,.0f}", "messages", ""
    # Never rounded up: 100 % is all of them.
    told = "none" if share is None else f"{floor(share * 1000) / 1000:g} %"
    yield told, "arrived in time", _looks(share)
    delivery_of = sketches(found["latency"], ["hop"]).get(("delivery",), Sketch([], []))
    for words, at in (("median delivery", 0.5), ("99 of 100 within", 0.99)):
        took_ms = delivery_of.percentile_ms(at)
        yield ("none" if took_ms is None else f"{took_ms:.3g} ms"), words, ""
    for verdict, count in audit.counts(found["audit"]).items():
        yield f"{count:,}", verdict, "bad" if count and verdict == "lost" else "doubt" * bool(count)
    dead = _sum(found["queues"], "died")
    yield f"{dead:,.0f}", "dead letters", "doubt" * bool(dead)
    yield f"{_peak(found['sessions']):,.0f}", "sessions at most", ""
    if aside:
        yield f"{aside:,}", "rows made no sense", "doubt"


def _sum(table: pa.Table, column: str) -> float:
    return float(pc.sum(table[column]).as_py() or 0)


def _peak(table: pa.Table) -> float:
    if not table.num_rows:
        return 0
    by_edge: Iterable[list[float]] = sessions.online(table, Span.of(table)).values()
    return max(map(sum, zip(*by_edge, strict=True)), default=0.0)


def _looks(share: float | None) -> str:
    if share is None:
        return ""
    return "good" if share >= 99.9 else "doubt" if share >= 99 else "bad"
