"""Retention: what of the copies by the hour is let go, so that a disk does not fill up with them.

Only files of one owner are looked at: others that write to the same folder keep theirs as they
were told to.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import msgspec

_HOUR = timedelta(hours=1)


class Retention(msgspec.Struct, frozen=True):
    """How long files are kept, and how many bytes of them; 0: all."""

    seconds: float = 0.0
    bytes: int = 0


class _Copy(NamedTuple):
    """A file, and when its hour was over."""

    over: datetime
    path: Path
    size: int


def let_go(folder: Path, owner: str, retention: Retention, now: datetime) -> list[Path]:
    """Remove what is too old, and then the oldest of what is too much; returns what went."""
    gone: list[Path] = []
    copies = sorted(_copies_of(folder, owner))
    left = sum(copy.size for copy in copies)
    for copy in copies:
        old = retention.seconds and copy.over < now - timedelta(seconds=retention.seconds)
        if not old and not 0 < retention.bytes < left:
            break
        copy.path.unlink(missing_ok=True)
        left -= copy.size
        gone.append(copy.path)
    for path in gone:
        # An hour, and a day, in which nobody else has anything.
        with suppress(OSError):
            path.parent.rmdir()
            path.parent.parent.rmdir()
    return gone


def _copies_of(folder: Path, owner: str) -> Iterator[_Copy]:
    for path in folder.glob(f"date=*/hour=*/{owner}-*.parquet"):
        # Another's name may begin with this one's.
        if path.name.rsplit("-", 2)[0] != owner:
            continue
        with suppress(ValueError, FileNotFoundError):
            day, hour = path.parent.parent.name, path.parent.name
            begun = datetime.strptime(f"{day} {hour}", "date=%Y-%m-%d hour=%H").replace(tzinfo=UTC)
            yield _Copy(begun + _HOUR, path, path.stat().st_size)
