"""The page: figures at a glance, then a section for each table; all of it in one file."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from math import floor
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from plotly.io.json import to_json_plotly
from plotly.offline import get_plotlyjs

from chappe.pipeline.kinds import PUSH
from chappe.pipeline.report import (
    audit,
    delivery,
    jobs,
    latency,
    links,
    queues,
    rooms,
    sessions,
    ways,
)
from chappe.pipeline.report.chart import Drawing, Section, shares, told_ms
from chappe.pipeline.report.gold import SHAPES, Gold, Period
from chappe.pipeline.report.sketches import COLUMNS, NOTHING, flattened, sketches
from chappe.pipeline.report.span import Span
from chappe.pipeline.report.tally import Tally
from chappe.pipeline.report.theme import SCRIPT, STYLE

_ALWAYS: Final = Period()
# Reasons to put a row aside that are listed; the table has all.
_PROBLEMS_MAX: Final = 50
# The page carries all that it needs, and a browser is told to fetch nothing.
_POLICY: Final = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
)


class Written(NamedTuple):
    """A page that was written: how large it is, and of which time."""

    bytes: int
    span: str


class _Shown(NamedTuple):
    """What is on a page."""

    span: Span
    # Those that are added up in steps, by name.
    tables: dict[str, pa.Table]
    times: pa.Table
    audit: audit.Audit
    problems: pa.Table
    sections: dict[str, Section]


def write(tables: Path, out: Path, period: Period = _ALWAYS) -> Written:
    """Write the page of these tables; it is there when it is whole, and not before.

    Raises OSError.
    """
    shown = _shown(Gold(tables, period))
    page = "".join(_page(shown)).encode()
    aside = out.with_name(out.name + ".part")
    try:
        with aside.open("wb") as file:
            file.write(page)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(out)
    finally:
        aside.unlink(missing_ok=True)
    return Written(len(page), shown.span.told)


def _shown(gold: Gold) -> _Shown:
    # One span for all, so that plots below each other are of the same time.
    named = dict.fromkeys(shape.table or name for name, shape in SHAPES.items())
    of_tables = (gold.windows(name) for name in (*named, "latency", "rooms", "jobs"))
    span = Span(itertools.chain(*of_tables, audit.windows(gold)))
    tables = {name: gold.stepped(name, span) for name in SHAPES}
    # Who came before and is still there is there.
    tables["sessions"] = pa.concat_tables([gold.before("sessions", span), tables["sessions"]])
    times = flattened(gold.parts("latency", COLUMNS), span)
    found = audit.gather(gold, span)
    problems = _problems(gold)
    sections = {
        "delivery": delivery.section(tables["delivery"], span),
        "latency": latency.section(times, span),
        "messages": ways.section(gold, found),
        "links": links.section(tables["links"], span),
        "rooms": rooms.section(
            rooms.gather(gold, span), tables["room_load"], tables["role_links"], span
        ),
        "queues": queues.section(tables["queues"], span),
        "push": jobs.section(jobs.gather(gold, span), span),
        "sessions": sessions.section(tables["sessions"], span),
        "audit": audit.section(found, span),
    }
    if problems.num_rows:
        sections["aside"] = _aside(problems)
    return _Shown(span, tables, times, found, problems, sections)


def _problems(gold: Gold) -> pa.Table:
    """How many rows made no sense, by what is wrong with them."""
    tally = Tally(["problem"], {"rows": "sum"})
    for _hour, part in gold.hourly("quarantine", ["problem"]):
        tally.add(part.append_column("rows", pa.array([1] * part.num_rows, pa.int64())))
    return tally.table(pa.schema([("problem", pa.string()), ("rows", pa.int64())]))


def _page(shown: _Shown) -> Iterator[str]:
    yield '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>Chappe: what happened</title><style>{STYLE}</style>"
    yield f"<script>{get_plotlyjs()}</script></head><body><header><h1>What happened</h1>"
    yield f"<p>{escape(shown.span.told)}</p><nav>"
    for name, section in shown.sections.items():
        yield f'<a href="#{name}">{escape(section.title)}</a>'
    yield '</nav></header><main><div class="tiles">'
    for value, words, looks in _tiles(shown):
        yield f'<div class="tile {looks}"><b>{escape(value)}</b><span>{escape(words)}</span></div>'
    yield "</div>"
    for name, section in shown.sections.items():
        yield from _section(name, section)
    yield "</main><footer>All times are UTC, by clocks that were corrected.</footer>"
    yield f"<script>{SCRIPT}</script></body></html>\n"


def _aside(problems: pa.Table) -> Section:
    """What nodes told that makes no sense, by what is wrong with it."""
    ranked = problems.sort_by([("rows", "descending"), ("problem", "ascending")])
    rows = [
        (row["problem"] or "", f"{row['rows']:,}")
        for row in ranked.slice(0, _PROBLEMS_MAX).to_pylist()
    ]
    about = "Rows that made no sense, and are in no other table: `quarantine` has them whole."
    return Section("Put aside", about, "", rows=[("what is wrong", "rows"), *rows])


def _section(name: str, section: Section) -> Iterator[str]:
    yield f'<section id="{name}"><h2>{escape(section.title)}</h2><p>{escape(section.about)}</p>'
    if not (section.drawings or section.rows or section.texts):
        yield f'<p class="nothing">{escape(section.nothing)}</p>'
    if section.drawings:
        yield '<div class="plots">'
        for n, drawing in enumerate(section.drawings):
            yield from _drawn(f"{name}-{n}", drawing)
        yield "</div>"
    if section.rows:
        yield from _listed(section.rows)
    for n, (title, text) in enumerate(section.texts):
        opened = " open" if n == 0 else ""
        yield f"<details{opened}><summary>{escape(title)}</summary>"
        yield f"<pre>{escape(text)}</pre></details>"
    yield "</section>"


def _drawn(place: str, drawing: Drawing) -> Iterator[str]:
    """The place of a figure, and beside it what the script of the page draws there."""
    figure = drawing.figure.to_plotly_json()
    # What all figures share is the page's: a template would be in each of them.
    figure["layout"].pop("template", None)
    whole = to_json_plotly({"data": figure["data"], "layout": figure["layout"]})
    # Nothing in a text ends the element that it is in.
    text = whole.replace("<", "\\u003c").replace(">", "\\u003e")
    height = figure["layout"]["height"]
    yield f"<div{' class=wide' if drawing.wide else ''}><h3>{escape(drawing.title)}</h3>"
    yield f'<div id="{place}" class="plot" style="height:{height}px"></div>'
    yield f'<script type="application/json">{text}</script></div>'


def _listed(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    heads, *lines = rows
    yield '<div class="scroll"><table><thead><tr>'
    yield from (f"<th>{escape(head)}</th>" for head in heads)
    yield "</tr></thead><tbody>"
    for line in lines:
        yield "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>"
    yield "</tbody></table></div>"


def _tiles(shown: _Shown) -> Iterator[tuple[str, str, str]]:
    """Figures at a glance: value, words, and how it looks."""
    everything = shown.tables["delivery"]
    # What a queue holds back may be meant to wait, and who is offline cannot have what is pushed:
    # both have figures of their own.
    apart = pc.is_in(everything["family"], value_set=pa.array(["queue", PUSH]))
    delivered = everything.filter(pc.invert(apart))
    messages, in_time = _sum(delivered, "messages"), _sum(delivered, "in_time")
    share = shares(in_time, messages)
    yield f"{_sum(everything, 'scaled'):,.0f}", "messages", ""
    # Never rounded up: 100 % is all of them.
    told = "none" if share is None else f"{floor(share * 1000) / 1000:g} %"
    yield told, "arrived in time, queues and push apart", _looks(share)
    delivery_of = sketches(shown.times, ["hop"]).get(("delivery",), NOTHING)
    for words, at in (("median to users and topics", 0.5), ("99 of 100 within", 0.99)):
        yield told_ms(delivery_of.percentile_ms(at)), words, ""
    for verdict, count in shown.audit.counts.items():
        yield f"{count:,}", verdict, "bad" if count and verdict == "lost" else "doubt" * bool(count)
    dead = _sum(shown.tables["queues"], "died")
    yield f"{dead:,.0f}", "dead letters", "doubt" * bool(dead)
    peak = _peak(shown.tables["sessions"], shown.span)
    yield f"{peak:,.0f}", "sessions at the end of a minute, at most", ""
    if aside := _sum(shown.problems, "rows"):
        yield f"{aside:,.0f}", "rows made no sense", "doubt"


def _sum(table: pa.Table, column: str) -> float:
    return float(pc.sum(table[column]).as_py() or 0)


def _peak(table: pa.Table, span: Span) -> float:
    if not table.num_rows:
        return 0
    by_edge: Iterable[list[float]] = sessions.online(table, span).values()
    return max(map(sum, zip(*by_edge, strict=True)), default=0.0)


def _looks(share: float | None) -> str:
    if share is None:
        return ""
    return "good" if share >= 99.9 else "doubt" if share >= 99 else "bad"
