"""The chart: CPU time per delivery as bars, each work on a scale of its own."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from benchmarks.figure import Table

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


def draw(tables: Sequence[Table]) -> str:
    """An SVG picture of every table that has bars."""
    y = _MARGIN + _TITLE_HEIGHT
    parts = [
        _text(_MARGIN, _MARGIN + 8, "Server CPU per delivery, microseconds (less is better)", 15)
    ]
    for table in tables:
        if table.bars:
            parts += _draw_group(table, y)
            y += _TITLE_HEIGHT + len(table.bars) * _STEP + _GAP
    size = f'width="{_WIDTH}" height="{y}" viewBox="0 0 {_WIDTH} {y}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif">'
    return "\n".join(
        [head, f'<rect width="{_WIDTH}" height="{y}" fill="#fff"/>', *parts, "</svg>", ""]
    )


def _draw_group(table: Table, y: int) -> list[str]:
    most = max(table.bars.values())
    parts = [_text(_MARGIN, y + 14, table.title, 13)]
    y += _TITLE_HEIGHT
    for label, value in table.bars.items():
        width = max(1.0, value / most * _BAR_WIDTH_MAX)
        left = _MARGIN + _LABEL_WIDTH
        fill = _OURS if label.startswith("Chappe") else _PEER
        parts.append(_text(_MARGIN, y + 12, label, 12))
        parts.append(
            f'<rect x="{left}" y="{y}" width="{width:.1f}" height="{_BAR_HEIGHT}" fill="{fill}"/>'
        )
        parts.append(_text(left + width + 6, y + 12, f"{value:.2f}", 12))
        y += _STEP
    return parts


def _text(x: float, y: float, text: str, size: int) -> str:
    return f'<text x="{x:.1f}" y="{y}" font-size="{size}" fill="#222">{escape(text)}</text>'
