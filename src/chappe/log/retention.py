"""Retention: which segments may go."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from chappe.log.options import JournalOptions
from chappe.log.segment import Segment


def removable(
    sealed: Sequence[Segment],
    passed: int,
    now_ms: int,
    options: JournalOptions,
    keep: Callable[[int], bool] | None,
) -> list[Segment]:
    """Choose the oldest segments that all have passed and that need not be kept for longer.

    None goes before one that is older, so that what is left has no gaps.
    """
    behind = [segment for segment in sealed if segment.end <= passed]
    kept_bytes = sum(segment.size for segment in behind)
    going: list[Segment] = []
    for segment in behind:
        old = now_ms - segment.ts_ms >= options.retention_s * 1000
        excess = 0 < options.retention_bytes < kept_bytes
        if not (old or excess) or (keep is not None and keep(segment.base)):
            break
        going.append(segment)
        kept_bytes -= segment.size
    return going
