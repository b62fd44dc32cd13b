"""What was said in rooms, which of them are hot spots, and how their brokers share the work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from chappe.pipeline.report.chart import (
    OTHERS,
    SERIES_MAX,
    Drawing,
    Section,
    colours,
    largest,
    lines,
    rates,
    shares,
    timed_lines,
)
from chappe.pipeline.report.gold import Gold
from chappe.pipeline.report.span import Span
from chappe.pipeline.report.tally import How, Tally
from chappe.pipeline.schema import TABLES, arrow_schema

# Rows on the page; the table has all.
_ROWS_MAX: Final = 50
_ROOM: Final = ["app", "room"]
_TOTALS: Final[dict[str, How]] = {
    "most": "sum",
    "deliveries": "sum",
    "members": "max",
    "gateways": "max",
    "share": "max",
    "hot_minutes": "sum",
}
_READ: Final = ("window", *_ROOM, "scaled", "counted", "deliveries", "members", "gateways", "share")
_SCHEMA: Final = pa.schema(
    [
        *(arrow_schema(TABLES["rooms"]).field(name) for name in (*_ROOM, *_READ[3:])),
        pa.field("most", pa.float64()),
        pa.field("hot_minutes", pa.int64()),
        pa.field("step", pa.int64()),
    ]
)
# Whom each role hands messages to.
_NEXT: Final = {"publisher": "proxy", "proxy": "broker", "broker": "gateway"}


class Rooms(NamedTuple):
    """What is known of rooms: how many there are, those at the top of the list, and how much was
    said in the largest, in steps."""

    rooms: int
    top: list[dict[str, Any]]
    steps: dict[str, dict[int, float]]


def gather(gold: Gold, span: Span) -> Rooms:
    """Add up what the table of rooms has of them."""
    every = Tally(_ROOM, _TOTALS)
    for part in _parts(gold):
        every.add(part)
    totals = every.table(_SCHEMA)
    several = len(totals["app"].unique()) > 1
    names = [(name, "ascending") for name in _ROOM]
    by_size = totals.sort_by([("most", "descending"), *names])
    # As many as are told apart, and all others as one.
    fits = totals.num_rows <= SERIES_MAX
    kept = by_size.slice(0, SERIES_MAX if fits else SERIES_MAX - 1).to_pylist()
    listed = by_size.sort_by([("hot_minutes", "descending"), ("most", "descending"), *names])
    top = [{**row, "name": _name(row, several)} for row in listed.slice(0, _ROWS_MAX).to_pylist()]
    return Rooms(totals.num_rows, top, _steps(gold, span, kept, several))


def _name(row: dict[str, Any], several: bool) -> str:
    """Of one app alone the app's tells nothing."""
    return f"{row['app']} {row['room']}" if several else row["room"] or ""


def _steps(
    gold: Gold, span: Span, kept: list[dict[str, Any]], several: bool
) -> dict[str, dict[int, float]]:
    """How much was said in each step, in some rooms and in all others."""
    some, every = Tally([*_ROOM, "step"], {"most": "sum"}), Tally(["step"], {"most": "sum"})
    rooms = pa.array([row["room"] for row in kept], pa.string())
    for part in _parts(gold):
        stepped = span.stepped(part).select([*_ROOM, "step", "most"])
        every.add(stepped)
        some.add(stepped.filter(pc.is_in(stepped["room"], value_set=rooms)))
    left = {row["step"]: row["most"] for row in every.table(_SCHEMA).to_pylist()}
    found: dict[str, dict[int, float]] = {_name(row, several): {} for row in kept}
    for row in some.table(_SCHEMA).to_pylist():
        at = found.get(_name(row, several))
        if at is not None:
            at[row["step"]] = row["most"]
            left[row["step"]] -= row["most"]
    # What adds up to all but for rounding is all.
    others = {step: most for step, most in left.items() if most > 1e-6}
    return found | ({OTHERS: others} if others else {})


def _parts(gold: Gold) -> Iterator[pa.Table]:
    for part in gold.parts("rooms", [*_READ, "hot"]):
        # What is sampled may be less than what a broker counted, which tells of few.
        most = pc.max_element_wise(part["scaled"], part["counted"].cast(pa.float64()))
        yield part.append_column("most", most).append_column(
            "hot_minutes", part["hot"].cast(pa.int64())
        )


def section(found: Rooms, load: pa.Table, links: pa.Table, span: Span) -> Section:
    """The section of rooms; of loads and of links between roles, tables in steps."""
    made = Section(
        "Rooms",
        "What was said in rooms, and what it made their brokers do. A hot spot is a room with a "
        "tenth or more of its broker's work, and a message a second or more. Work is what comes to "
        "a broker, and each copy that it hands to a gateway; imbalance 1 is a fair share of it.",
        "Nobody said anything in a room, and no broker told of its work.",
    )
    if found.rooms:
        made.drawings.append(_largest(found, span))
    if load.num_rows:
        made.drawings.extend(_loads(load, span))
    made.drawings.extend(_links(links, span))
    if found.rooms:
        made.rows.extend(_listed(found))
    return made


def _largest(found: Rooms, span: Span) -> Drawing:
    amounts = {
        name: [at.get(step, 0.0) / span.seconds for step in span.steps]
        for name, at in found.steps.items()
    }
    return rates("messages a second, by room", span, amounts, colours(amounts), wide=True)


def _loads(load: pa.Table, span: Span) -> Iterator[Drawing]:
    """What partitions have to do, and how unevenly their brokers share it."""
    parts: dict[str, dict[int, float]] = {}
    uneven: dict[str, dict[int, float]] = {}
    weights: dict[str, float] = {}
    for row in load.to_pylist():
        partition = f"partition {row['partition']}"
        work = (row["messages"] or 0) + (row["copies"] or 0)
        at = parts.setdefault(partition, {})
        at[row["step"]] = at.get(row["step"], 0.0) + work
        broker = f"{row['node']}, {partition}"
        weights[broker] = weights.get(broker, 0.0) + work
        if row["imbalance"] is not None:
            uneven.setdefault(broker, {})[row["step"]] = row["imbalance"]
    shown = largest({name: sum(at.values()) for name, at in parts.items()})
    amounts: dict[str, list[float]] = {}
    for name, at in sorted(parts.items()):
        line = amounts.setdefault(shown[name], [0.0] * len(span.steps))
        for n, step in enumerate(span.steps):
            line[n] += at.get(step, 0.0) / span.seconds
    yield rates("messages and copies a second, by partition", span, amounts, colours(amounts))
    kept = [name for name, line in largest(weights).items() if line == name]
    series = {name: [uneven.get(name, {}).get(step) for step in span.steps] for name in kept}
    title = "imbalance: how many times its fair share a broker had"
    yield lines(title, span, series, colours(kept), rangemode="tozero", hoverformat=".3~f")


def _links(table: pa.Table, span: Span) -> Iterator[Drawing]:
    """What probes and messages say of links between roles."""
    by_name: dict[str, dict[int, dict[str, Any]]] = {}
    weights: dict[str, float] = {}
    for row in table.to_pylist():
        if row["role"] is not None:
            name = f"{row['node']} {row['role']} → {row['peer']} {_NEXT.get(row['role'], '')}"
            by_name.setdefault(name, {})[row["step"]] = row
            weights[name] = weights.get(name, 0.0) + (row["handed"] or 0)
            weights[name] += row["probes"] or 0
    names = [name for name, line in largest(weights).items() if line == name]
    looks = colours(names)
    for title, column in (
        ("delay of messages between roles: p99", "delay_p99"),
        ("delay of probes between roles: p99", "probe_p99"),
    ):
        series = {name: _times(by_name[name], column, span) for name in names}
        known = {name: ys for name, ys in series.items() if any(y is not None for y in ys)}
        if known:
            yield timed_lines(title, span, known, looks)
    failed = {
        name: [
            shares(row["failed"] or 0, row["probes"] or 0)
            if (row := by_name[name].get(step))
            else None
            for step in span.steps
        ]
        for name in names
    }
    if any(y for ys in failed.values() for y in ys):
        yield lines("probes that failed", span, failed, looks, ticksuffix=" %", rangemode="tozero")


def _times(at: dict[int, dict[str, Any]], column: str, span: Span) -> list[float | None]:
    known = [at.get(step, {}).get(column) for step in span.steps]
    return [None if us is None else us / 1000 for us in known]


def _listed(found: Rooms) -> list[Sequence[str]]:
    """A table of rooms, hot spots before all others."""
    rows: list[Sequence[str]] = [
        ("room", "messages", "deliveries", "members", "gateways", "of its broker", "hot")
    ]
    for row in found.top:
        share = "" if row["share"] is None else f"{100 * row['share']:.3g} %"
        hot = f"{row['hot_minutes']:,} min" if row["hot_minutes"] else ""
        counts = (row[name] or 0 for name in ("most", "deliveries", "members", "gateways"))
        rows.append((row["name"], *(f"{count:,.0f}" for count in counts), share, hot))
    if found.rooms > len(found.top):
        rows.append((f"and {found.rooms - len(found.top):,} more", *[""] * 6))
    return rows
