"""Positions: how far one has come in a topic that keeps a history.

A history has an epoch, and within it offsets that grow. The last message that came tells where to
go on after a reconnect; the last one that was taken out of the inbox is what an application may
rely on. The two differ by what waits in the inbox, perhaps through several epochs.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple


class Position(NamedTuple):
    """A place in a topic's history: the message there is the last one that was seen."""

    epoch: str
    offset: int


class _Era:
    """One epoch: the last offset that was taken, and how many messages wait to be."""

    __slots__ = ("epoch", "offset", "waiting")

    def __init__(self, epoch: str, offset: int) -> None:
        self.epoch = epoch
        self.offset = offset
        self.waiting = 0


class Track:
    """One client's way through one topic."""

    __slots__ = ("_eras", "_offset", "asking")

    def __init__(self, epoch: str, offset: int) -> None:
        # Bounded by the inbox: all but the newest have messages in it.
        self._eras = deque((_Era(epoch, offset),))
        self._offset = offset
        # Whether the hub was told the position, and has not said yet what became of it.
        self.asking = False

    @property
    def came(self) -> Position:
        """Where the last message was that came."""
        return Position(self._eras[-1].epoch, self._offset)

    @property
    def taken(self) -> Position:
        """Where the last message was that the application took."""
        era = self._eras[0]
        return Position(era.epoch, era.offset)

    @property
    def empty(self) -> bool:
        """Whether no message of it waits in the inbox."""
        return not self._eras[0].waiting

    def admit(self, offset: int) -> bool:
        """Take note of a message; False if it came before."""
        if offset <= self._offset:
            return False
        self._offset = offset
        self._eras[-1].waiting += 1
        return True

    def take(self, offset: int) -> None:
        """Take note of a message that leaves the inbox."""
        era = self._eras[0]
        if not era.waiting:
            return  # it came before this topic was tracked
        era.offset = offset
        era.waiting -= 1
        if not era.waiting and len(self._eras) > 1:
            self._eras.popleft()

    def move(self, epoch: str, offset: int) -> None:
        """Go on from another place; within an epoch never from an earlier one."""
        newest = self._eras[-1]
        if epoch != newest.epoch:
            self.restart(epoch, offset)
        elif offset > self._offset:
            self._offset = offset
            if not newest.waiting:
                newest.offset = offset

    def restart(self, epoch: str, offset: int) -> None:
        """Go on from any other place, once what waits has been taken."""
        if not self._eras[-1].waiting:
            self._eras.pop()
        self._eras.append(_Era(epoch, offset))
        self._offset = offset
