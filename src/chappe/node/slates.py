"""Slates on the disk: one for each life of a node, in the folder of its event log; blocking.

    FOLDER/_log/NODE/slate-BOOT

A life that ends in order takes its own away. What a life that was killed left is brought to the log
by the next as soon as there is room, or by whoever seals that; only then it goes.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import structlog

from chappe.errors import Overload, RequestError
from chappe.events.lives import Left, Lives
from chappe.events.record import Life
from chappe.events.slate import BYTES, Slate
from chappe.log.group import Done

log = structlog.get_logger()

# While a log has no room they stay. A life that finds so many makes none.
SLATES_MAX = 32
_PREFIX = "slate-"


def open_slate(log: Path, boot: int) -> Slate:
    """Make the slate of a life; raises OSError when there is no room for it."""
    if len(left_slates(log)) >= SLATES_MAX:
        raise OSError(errno.ENOSPC, f"{SLATES_MAX} slates wait for room in the log")
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


class Leftover(NamedTuple):
    """A slate that has something which the log has not."""

    slate: Path
    left: Left


def leftovers(slates: Sequence[Path], lives: Lives) -> list[Leftover]:
    """Those of the slates that have something which the log has not."""
    found = [(slate, lives.left(slate.read_bytes())) for slate in slates]
    return [Leftover(slate, left) for slate, left in found if left is not None]


def remove(slates: Iterable[Path]) -> None:
    """The log has what they had."""
    for slate in slates:
        with suppress(FileNotFoundError):
            slate.unlink()


class Homecoming:
    """The way of what slates have to the log: one after another, as a batch has room for one.

    `append` takes records for one batch, and raises Overload when there is no room.
    """

    def __init__(
        self,
        lives: Lives,
        left: Sequence[Leftover],
        append: Callable[[Sequence[bytes], Done], object],
    ) -> None:
        self._lives = lives
        self._left = deque(left)
        self._append = append
        # The one that the log has accepted, and not written yet.
        self._under_way: Leftover | None = None
        self._warned = False

    def unfinished(self) -> list[Life]:
        """Lives that something is still to be told of, behind all that the log has accepted."""
        return self._lives.unfinished(one.left.life.boot for one in self._left)

    def go_on(self) -> None:
        """Bring the next one if there is room; else it stays where it is."""
        if self._under_way is not None or not self._left:
            return
        try:
            self._append(self._left[0].left.records, self._arrived)
        except Overload as error:
            if not self._warned:
                log.warning("events.slates_left", slates=len(self._left), reason=error.reason)
            self._warned = True
            return
        self._under_way = self._left.popleft()
        self._lives.add(self._under_way.left.life)

    def _arrived(self, error: RequestError | None) -> None:
        if error is not None or self._under_way is None:
            # Nobody knows whether the log has it: the next life finds out.
            return
        slate, self._under_way = self._under_way.slate, None
        try:
            remove([slate])
        except OSError as problem:
            # That the log has it is known from there.
            log.warning("events.slate_stays", slate=str(slate), reason=str(problem))
        self.go_on()


def _path(log: Path, boot: int) -> Path:
    return log / f"{_PREFIX}{boot}"
