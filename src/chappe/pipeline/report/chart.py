"""What all plots share: colours, axes, and names that are safe to show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, Final

import plotly.graph_objects as go
from plotly.subplots import make_subplots

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


@dataclass(frozen=True)
class Section:
    """A part of the page: what it is, a word on how to read it, and what there is to see."""

    title: str
    about: str
    figures: list[go.Figure] = field(default_factory=list)
    # Rows below the plots, the first of them the heads of columns; texts of strangers.
    rows: list[Sequence[str]] = field(default_factory=list)


def safe(text: str | None) -> str:
    """A name as a plot may show it: plots read some tags, and strangers choose names."""
    return escape(text or "(none)")


def shares(count: float, total: float) -> float | None:
    """A share in per cent, or None of nothing."""
    return None if not total else 100 * count / total


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


def grid(titles: Sequence[str], *, columns: int = 2, height: int = 300) -> go.Figure:
    """Plots side by side, with one legend."""
    rows = -(-len(titles) // columns)
    figure = make_subplots(
        rows=rows,
        cols=columns,
        subplot_titles=titles,
        vertical_spacing=0.16 / max(1, rows - 1) if rows > 1 else 0.0,
        horizontal_spacing=0.08,
    )
    return styled(figure, height * rows)


def plot(title: str, *, height: int = 320) -> go.Figure:
    """One plot."""
    figure = go.Figure()
    figure.update_layout(title={"text": title, "font": {"size": 15}})
    return styled(figure, height)


def styled(figure: go.Figure, height: int) -> go.Figure:
    """Give a figure the looks of the page."""
    figure.update_layout(
        template="plotly_white",
        height=height + 60,
        margin={"l": 60, "r": 20, "t": 50, "b": 40},
        font={"family": "system-ui, sans-serif", "size": 12, "color": "#1d2733"},
        colorway=list(PALETTE),
        hovermode="x unified",
        legend={"orientation": "h", "y": -0.12, "yanchor": "top"},
        paper_bgcolor="rgba(0,0,0,0)",
    )
    return figure


def line(xs: Sequence[Any], ys: Sequence[Any], name: str, colour: str, **more: Any) -> go.Scatter:
    """A line; a single point is seen, too."""
    mode = "lines+markers" if len(xs) < 40 else "lines"
    looks = {"color": colour, "width": 2, **more.pop("line", {})}
    shown = safe(name)
    return go.Scatter(x=xs, y=ys, name=shown, legendgroup=shown, mode=mode, line=looks, **more)
