"""How much was sent, and how much of it arrived in time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from chappe.pipeline.report.chart import Drawing, Section, colours, largest, lines, rates, shares
from chappe.pipeline.report.span import Span

_SUMMED: Final = ("scaled", "messages", "delivered", "in_time")


def section(table: pa.Table, span: Span) -> Section:
    """The section of delivery, of a table in steps."""
    made = Section(
        "Delivery",
        f"Messages a second, by the {span.step_told} of their birth, and which share of them "
        "arrived at all, and within the time promised (--sla-ms, --queue-sla-ms of the run). "
        "What is sampled is scaled up to what there was.",
        "No message was recorded: none was sent, or events.share of the nodes is 0.",
    )
    if table.num_rows:
        made.drawings.extend(_by(table, span, "family", "kind"))
        if len(table["app"].unique()) > 1:
            made.drawings.extend(_by(table, span, "app", "app"))
    return made


def _by(table: pa.Table, span: Span, key: str, word: str) -> Iterator[Drawing]:
    """Rates and shares over time, for each family or app a line."""
    counted = (
        table.group_by([key, "step"]).aggregate([(name, "sum") for name in _SUMMED]).to_pylist()
    )
    weights: dict[str, float] = {}
    for row in counted:
        weights[row[key] or ""] = weights.get(row[key] or "", 0) + row["scaled_sum"]
    shown = largest(weights)
    sums: dict[tuple[str, int], dict[str, float]] = {}
    for row in counted:
        at = sums.setdefault((shown[row[key] or ""], row["step"]), dict.fromkeys(_SUMMED, 0.0))
        for name in _SUMMED:
            at[name] += row[f"{name}_sum"]
    names = list(dict.fromkeys(shown.values()))
    looks = colours(names)

    def share(name: str, step: int, of: str) -> float | None:
        at = sums.get((name, step))
        return None if at is None else shares(at[of], at["messages"])

    amounts = {
        name: [
            sums[name, step]["scaled"] / span.seconds if (name, step) in sums else 0.0
            for step in span.steps
        ]
        for name in names
    }
    yield rates(f"messages a second, by {word}", span, amounts, looks, wide=key == "family")
    for of, title in (("in_time", "arrived in time"), ("delivered", "arrived at all")):
        if of == "delivered" and key != "family":
            continue
        found = {name: [share(name, step, of) for step in span.steps] for name in names}
        yield lines(f"{title}, by {word}", span, found, looks, **_share_axis(found))


def _share_axis(series: dict[str, list[float | None]]) -> dict[str, object]:
    """An axis of shares: it ends at all, and shows a line also where nothing changes."""
    least = min((y for ys in series.values() for y in ys if y is not None), default=100.0)
    bottom = max(0.0, min(99.9, least - (100 - least) * 0.1))
    return {"ticksuffix": " %", "range": [bottom, 100 + (100 - bottom) * 0.05]}
