"""Cutting: taking back the newest part of a log, as a master that was deposed has to."""

from __future__ import annotations

from chappe.log.batch import Batch
from chappe.log.fs import Fs
from chappe.log.segment import Segments, scan


def cut_back(fs: Fs, segments: Segments, lsn: int) -> int:
    """Cut to the last batch that ends at a position or before; returns where that is.

    A segment of which nothing would be left goes. The newest goes first, so that a crash in between
    leaves no gap. Raises OSError.
    """
    while segments.all and segments.all[-1].base >= lsn:
        last = segments.all.pop()
        fs.remove(segments.path(last.base))
        _forget_index(fs, segments, last.base)
    if not segments.all:
        return lsn
    last = segments.all[-1]
    path = segments.path(last.base)
    end = last.base
    for part in scan(fs, path, last.base, last.size):
        part_end = part.end if isinstance(part, Batch) else last.base + part.end
        if part_end > lsn:
            break
        end = part_end
    if end == last.base:
        # No batch ends there: the one in the way goes, and with it the segment.
        return cut_back(fs, segments, end)
    fs.truncate(path, end - last.base)
    last.end = end
    _forget_index(fs, segments, last.base)
    return end


def _forget_index(fs: Fs, segments: Segments, base: int) -> None:
    if fs.exists(segments.index_path(base)):
        fs.remove(segments.index_path(base))
    fs.sync_dir(segments.folder)
