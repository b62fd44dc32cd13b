"""Slates on the disk: one for each life of a node, in the folder of its event log; blocking.

    FOLDER/_log/NODE/slate-BOOT

A life that ends in order takes its own away. What a life that was killed left is brought to the log
by the next, or by whoever seals that; only then it goes.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from chappe.events.slate import BYTES, Slate, Told
from chappe.log.batch import Batch

_PREFIX = "slate-"


def open_slate(log: Path, boot: int) -> Slate:
    """Make the slate of a life; raises OSError when there is no room for it."""
    path = _path(log, boot)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        # All of it: memory that a full disk has no room for would end the process.
        os.posix_fallocate(fd, 0, BYTES)
        return Slate(mmap.mmap(fd, BYTES))
    except OSError:
        path.unlink()
        raise
    finally:
        os.close(fd)


def remove_slate(log: Path, boot: int) -> None:
    """The log has all that is on a slate."""
    remove([_path(log, boot)])


def left_slates(log: Path) -> list[Path]:
    """The slates in a folder, oldest first."""
    return sorted(log.glob(f"{_PREFIX}*"))


def lacking(slates: Sequence[Path], batches: Iterable[Batch]) -> list[bytes]:
    """What slates have and a log has not, of which these are the last batches: records for it."""
    told = Told()
    for batch in batches:
        if slates:
            told.take(batch.array)
    return [record for slate in slates for record in told.left(slate.read_bytes())]


def remove(slates: Iterable[Path]) -> None:
    """The log has what they had."""
    for slate in slates:
        with suppress(FileNotFoundError):
            slate.unlink()


def _path(log: Path, boot: int) -> Path:
    return log / f"{_PREFIX}{boot}"
