"""What was pushed to devices: how many clients it was for, and what became of it (P9)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from chappe.pipeline.report.chart import (
    BAD,
    DOUBT,
    GOOD,
    QUIET,
    Drawing,
    Section,
    colours,
    lines,
    rates,
    shares,
    timed_lines,
    told_ms,
)
from chappe.pipeline.report.gold import Gold
from chappe.pipeline.report.sketches import NOTHING, Sketch, exploded, sketches
from chappe.pipeline.report.span import Span, clock
from chappe.pipeline.report.tally import How, Tally
from chappe.pipeline.schema import TABLES, arrow_schema

# Rows on the page; the table has all.
_ROWS_MAX: Final = 50
_COUNTS: Final = (
    *("aimed", "sent", "arrived", "clicked", "offline", "dropped", "withdrawn", "waiting"),
)
_SUMS: Final[dict[str, How]] = dict.fromkeys(_COUNTS, "sum")
_NAMES: Final = ("app", "job", "note", "target", "born", "expires")
_READ: Final = (*_NAMES, "window", *_COUNTS, "p99")
_PERCENTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
_SCHEMA: Final = pa.schema(
    [
        *arrow_schema(TABLES["jobs"]),
        *((name, pa.int64()) for name in ("step", "count")),
        ("bucket", pa.int32()),
    ]
)
# What becomes of each client, one or the other.
_FATES: Final = {
    "arrived": ("acknowledged", GOOD),
    "waiting": ("waits, or expired", QUIET),
    "withdrawn": ("taken back", DOUBT),
    "lost": ("dropped", BAD),
}


class Jobs(NamedTuple):
    """What is known of notes: how many there are, those that were for the most clients, counts in
    steps, and how long it took in each."""

    notes: int
    top: list[dict[str, Any]]
    steps: dict[int, dict[str, int]]
    times: dict[int, Sketch]


def gather(gold: Gold, span: Span) -> Jobs:
    """Add up what the table of jobs has of them."""
    sums, times = Tally(["step"], _SUMS), Tally(["step", "bucket"], {"count": "sum"})
    top = _SCHEMA.empty_table().select(_READ)
    notes = 0
    for part in gold.parts("jobs", [*_READ, "buckets"]):
        stepped = span.stepped(part)
        sums.add(stepped.select(["step", *_COUNTS]))
        times.add(exploded(stepped, ["step"]))
        notes += part.num_rows
        order = [("aimed", "descending"), ("born", "ascending"), ("note", "ascending")]
        top = pa.concat_tables([top, part.select(_READ)]).sort_by(order).slice(0, _ROWS_MAX)
    steps = {row.pop("step"): row for row in sums.table(_SCHEMA).to_pylist()}
    found = sketches(times.table(_SCHEMA), ["step"])
    return Jobs(notes, top.to_pylist(), steps, {step: one for (step,), one in found.items()})


def section(found: Jobs, span: Span) -> Section:
    """The section of push."""
    made = Section(
        "Push",
        "Notes that were pushed to devices, by when they were sent. Aimed at are the clients that "
        "a note was for, arrived are those that acknowledged it; who is offline gets it when they "
        "are back, until it expires. Times are of those who were online, from sending to "
        "acknowledgement.",
        "Nothing was pushed to a device.",
    )
    if found.notes:
        made.drawings.extend(_drawings(found, span))
        made.rows.extend(_listed(found))
    return made


def _drawings(found: Jobs, span: Span) -> Iterator[Drawing]:
    looks = dict(_FATES.values())
    amounts = {
        title: [_fate(found.steps.get(step), fate) / span.seconds for step in span.steps]
        for fate, (title, _look) in _FATES.items()
    }
    yield rates("clients a second, by what became of it", span, amounts, looks, wide=True)
    parts = {"handed over": ("sent", "aimed"), "arrived": ("arrived", "aimed")}
    parts |= {"offline": ("offline", "aimed"), "clicked, of those": ("clicked", "arrived")}
    ratios = {
        name: [
            shares(row[part], row[of]) if (row := found.steps.get(step)) else None
            for step in span.steps
        ]
        for name, (part, of) in parts.items()
    }
    yield lines("shares of clients", span, ratios, colours(parts), ticksuffix=" %", range=[0, 105])
    series = {
        name: [found.times.get(step, NOTHING).percentile_ms(share) for step in span.steps]
        for name, share in _PERCENTILES.items()
    }
    if any(y is not None for ys in series.values() for y in ys):
        yield timed_lines("time to arrival", span, series, colours(_PERCENTILES))


def _fate(counts: dict[str, int] | None, fate: str) -> int:
    if counts is None:
        return 0
    return counts["dropped"] - counts["withdrawn"] if fate == "lost" else counts[fate]


def _listed(found: Jobs) -> list[Sequence[str]]:
    """A table of notes, those for the most clients before all others."""
    heads = ("note", "job", "to", "sent at", "aimed", "handed over", "arrived", "clicked")
    rows: list[Sequence[str]] = [
        (*heads, "offline", "dropped", "waits or expired", "99 of 100 within")
    ]
    for row in found.top:
        counts = (
            f"{row['aimed']:,}",
            *(_counted(row, name, "aimed") for name in ("sent", "arrived")),
            _counted(row, "clicked", "arrived"),
            *(f"{row[name]:,}" for name in ("offline", "dropped", "waiting")),
        )
        names = (row["note"] or "", row["job"] or "", row["target"] or "", clock(row["born"]))
        within = "" if row["p99"] is None else told_ms(row["p99"] / 1000)
        rows.append((*names, *counts, within))
    if found.notes > len(found.top):
        rows.append((f"and {found.notes - len(found.top):,} more", *[""] * (len(rows[0]) - 1)))
    return rows


def _counted(row: dict[str, Any], name: str, of: str) -> str:
    share = shares(row[name], row[of])
    return f"{row[name]:,}" if share is None else f"{row[name]:,} ({share:.3g} %)"
