"""Charts: figures as bars, each table on a scale of its own."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from benchmarks.figure import Chart, Table

DELIVERIES = Chart("cpu-per-delivery.svg", "Server CPU per delivery, microseconds (less is better)")
CLUSTER = Chart(
    "cluster.svg", "CPU of all nodes per delivery, microseconds (less is better)", ours="two"
)
QUEUES = Chart("queues.svg", "Queues, messages per second (more is better)")
ROOMS = Chart(
    "rooms.svg",
    "CPU of all servers per delivery in a room, microseconds (less is better)",
    whole=True,
)
GROWTH = Chart(
    "rooms-growth.svg", "Messages a second that rooms carry, by partitions", ours="", whole=True
)
KEYS = Chart(
    "keys.svg",
    "CPU of both replicas per delivery by key, microseconds (less is better)",
    whole=True,
)
ROUTES = Chart("routes.svg", "Nanoseconds, by endpoints in the routing table", ours="")

_WIDTH = 760
_LABEL_WIDTH = 205
_BAR_WIDTH_MAX = 455
_BAR_HEIGHT = 16
_STEP = 21
_TITLE_HEIGHT = 26
_GAP = 16
_MARGIN = 18
_OURS = "#1f6f8b"
_PEER = "#b9c0c6"


def charts(tables: Sequence[Table]) -> list[Chart]:
    """The charts that tables have bars for, in their order."""
    return list(dict.fromkeys(t.chart for t in tables if t.chart is not None and t.bars))


def draw(chart: Chart, tables: Sequence[Table]) -> str:
    """An SVG picture of every table that has bars in a chart."""
    y = _MARGIN + _TITLE_HEIGHT
    parts = [_text(_MARGIN, _MARGIN + 8, chart.title, 15)]
    for table in tables:
        if table.bars and table.chart is chart:
            parts += _draw_group(table, y, chart.ours)
            y += _TITLE_HEIGHT + len(table.bars) * _STEP + _GAP
    size = f'width="{_WIDTH}" height="{y}" viewBox="0 0 {_WIDTH} {y}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif">'
    return "\n".join(
        [head, f'<rect width="{_WIDTH}" height="{y}" fill="#fff"/>', *parts, "</svg>", ""]
    )


def _draw_group(table: Table, y: int, ours: str) -> list[str]:
    most = max(table.bars.values())
    parts = [_text(_MARGIN, y + 14, table.title, 13)]
    y += _TITLE_HEIGHT
    for label, value in table.bars.items():
        width = max(1.0, value / most * _BAR_WIDTH_MAX)
        left = _MARGIN + _LABEL_WIDTH
        fill = _OURS if label.startswith(ours) else _PEER
        parts.append(_text(_MARGIN, y + 12, label, 12))
        parts.append(
            f'<rect x="{left}" y="{y}" width="{width:.1f}" height="{_BAR_HEIGHT}" fill="{fill}"/>'
        )
        parts.append(_text(left + width + 6, y + 12, f"{value:,.{0 if value > 30 else 2}f}", 12))
        y += _STEP
    return parts


def _text(x: float, y: float, text: str, size: int) -> str:
    return f'<text x="{x:.1f}" y="{y}" font-size="{size}" fill="#222">{escape(text)}</text>'
