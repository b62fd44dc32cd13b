"""What all plots share: colours, axes, and names that are safe to show.

Figures say nothing of the page's background: it is light or dark as its reader's machine is, and
theme.py gives each figure what follows from that.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, Final, NamedTuple

import plotly.graph_objects as go

from chappe.pipeline.report.span import Span

# Told apart by people who do not see all colours (after Okabe and Ito).
PALETTE: Final = (
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#d55e00",
    "#b8a800",
    "#666666",
)
GOOD: Final = "#009e73"
BAD: Final = "#d55e00"
DOUBT: Final = "#e69f00"
QUIET: Final = "#8a94a0"

# Lines that can be told apart in one plot; what is beyond is shown as one.
SERIES_MAX: Final = 8
OTHERS: Final = "others"
# Bars are wide enough to be seen up to so many; a line has points up to so many.
_BARS_MAX: Final = 60
_POINTS_MAX: Final = 40
# Up to so many steps each has a label; of more, some.
_TICKS_MAX: Final = 6
# Of an axis that spans more powers of ten than this, only those have a label.
_DECADES_MAX: Final = 2

Series = Mapping[str, Sequence[float | None]]


class Drawing(NamedTuple):
    """A figure below its title; half the page wide where there is room, or all of it."""

    title: str
    figure: go.Figure
    wide: bool = False


@dataclass(frozen=True)
class Section:
    """A part of the page: what it is, a word on how to read it, and what there is to see."""

    title: str
    about: str
    # Why there is nothing to see, where that is so.
    nothing: str
    drawings: list[Drawing] = field(default_factory=list)
    # Rows below the plots, the first of them the heads of columns; texts of strangers.
    rows: list[Sequence[str]] = field(default_factory=list)
    # Texts below them, which a click opens: a title, and lines as a terminal shows them.
    texts: list[tuple[str, str]] = field(default_factory=list)


def safe(text: str | None) -> str:
    """A name as a plot may show it: plots read some tags, and strangers choose names."""
    return escape(text or "(none)")


def shares(count: float, total: float) -> float | None:
    """A share in per cent, or None of nothing."""
    return None if not total else 100 * count / total


def told_ms(ms: float | None) -> str:
    """A time as people say it, to three digits."""
    if ms is None:
        return "none"
    for unit, size in (("s", 1000), ("ms", 1)):
        value = ms / size
        if float(f"{value:.3g}") >= 1:
            return f"{value:,.0f} {unit}" if value >= 999.5 else f"{value:.3g} {unit}"
    return f"{ms * 1000:.3g} µs"


def colours(names: Iterable[str]) -> dict[str, str]:
    """A colour for each name, the same in every plot of a section."""
    given = {name: PALETTE[n % len(PALETTE)] for n, name in enumerate(names)}
    return given | {OTHERS: QUIET}


def largest(weights: Mapping[str, float]) -> dict[str, str]:
    """What to show each name as: itself for the largest, `others` for the rest."""
    ranked = sorted(weights, key=lambda name: (-weights[name], name))
    fits = len(ranked) <= SERIES_MAX
    kept = set(ranked if fits else ranked[: SERIES_MAX - 1])
    return {name: name if name in kept else OTHERS for name in ranked}


def plot(*, height: int = 300, **layout: Any) -> go.Figure:
    """A figure with the looks of the page, and nothing in it yet."""
    figure = go.Figure()
    figure.update_layout(
        height=height,
        margin={"l": 10, "r": 10, "t": 10, "b": 10},
        font={"family": "system-ui, sans-serif", "size": 12},
        colorway=list(PALETTE),
        hovermode="x unified",
        legend={"orientation": "h", "y": -0.16, "yanchor": "top", "x": 0},
        **layout,
    )
    figure.update_xaxes(automargin=True, zeroline=False)
    figure.update_yaxes(automargin=True, zeroline=False)
    return figure


def rates(
    title: str, span: Span, series: Series, looks: Mapping[str, str], *, wide: bool = False
) -> Drawing:
    """Amounts over time that add up: stacked bars, or areas where there are too many steps."""
    figure = plot(barmode="stack", bargap=0.04)
    for name, ys in series.items():
        common = {"x": span.times, "y": list(ys), "name": safe(name), **_period(span)}
        if len(span.steps) <= _BARS_MAX:
            figure.add_trace(go.Bar(marker={"color": looks[name]}, **common))
            continue
        edge = {"color": looks[name], "width": 1}
        figure.add_trace(go.Scatter(stackgroup="all", line=edge, mode="lines", **common))
    figure.update_yaxes(rangemode="tozero", exponentformat="none", separatethousands=True)
    # As they stand on each other a legend would be upside down.
    figure.update_layout(legend={"traceorder": "normal"})
    return Drawing(title, _timed(figure, span, series), wide)


def lines(title: str, span: Span, series: Series, looks: Mapping[str, str], **axis: Any) -> Drawing:
    """A line over time for each name."""
    figure = plot()
    mode = "lines+markers" if len(span.steps) < _POINTS_MAX else "lines"
    for name, ys in series.items():
        look = {"color": looks[name], "width": 2}
        figure.add_trace(
            go.Scatter(
                x=span.times, y=list(ys), name=safe(name), mode=mode, line=look, **_period(span)
            )
        )
    figure.update_yaxes(**({"exponentformat": "none", "separatethousands": True} | axis))
    return Drawing(title, _timed(figure, span, series))


def timed_lines(title: str, span: Span, series: Series, looks: Mapping[str, str]) -> Drawing:
    """As `lines`, of times in milliseconds: their axis is logarithmic."""
    known = [y for ys in series.values() for y in ys]
    return lines(title, span, series, looks, hoverformat=".3~g", **time_axis(known))


def time_axis(times_ms: Iterable[float | None]) -> dict[str, Any]:
    """A logarithmic axis of times, with labels that people read."""
    known = [ms for ms in times_ms if ms is not None and ms > 0] or [1.0]
    low, high = math.log10(min(known)), math.log10(max(known))
    # Room on both sides; a single time is in the middle.
    low, high = low - 0.1 - (high == low) * 0.4, high + 0.1 + (high == low) * 0.4
    within = range(math.floor(low), math.ceil(high) + 1)
    leads = (1, 2, 5) if high - low <= _DECADES_MAX else (1,)
    ticks = [lead * 10.0**power for power in within for lead in leads]
    return {
        "type": "log",
        "range": [low, high],
        "tickvals": ticks,
        "ticktext": [told_ms(tick) for tick in ticks],
    }


def timed(figure: go.Figure, span: Span) -> go.Figure:
    """Give a figure the axis of time that all have."""
    axis: dict[str, Any] = {"range": span.bounds, "tickangle": 0, "nticks": 7, "type": "date"}
    if span.within_a_day:
        axis["tickformat"] = "%H:%M"
    if len(span.steps) <= _TICKS_MAX:
        axis["dtick"] = span.step_min * 60_000
    figure.update_xaxes(**axis)
    return figure


def _period(span: Span) -> dict[str, Any]:
    """A point stands for all of its step, not for its begin."""
    return {"xperiod": span.step_min * 60_000, "xperiodalignment": "middle"}


def _timed(figure: go.Figure, span: Span, series: Series) -> go.Figure:
    figure.update_layout(showlegend=len(series) > 1)
    return timed(figure, span)
