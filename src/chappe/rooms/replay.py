"""The replay window: which counters of a sender were there before."""

from __future__ import annotations

# Datagrams may overtake each other by so many; what is further behind is not told from a replay.
WINDOW = 1024
_MASK = (1 << WINDOW) - 1


class ReplayWindow:
    """Takes each counter at most once, and none that lies behind the window."""

    __slots__ = ("_seen", "_top")

    def __init__(self) -> None:
        self._top = -1
        # One bit for each counter that was taken, the lowest one for the top.
        self._seen = 0

    def take(self, counter: int) -> bool:
        """Whether this is the first time."""
        ahead = counter - self._top
        if ahead > 0:
            # Somebody may skip so many that no shift could hold them.
            self._seen = (self._seen << ahead & _MASK | 1) if ahead < WINDOW else 1
            self._top = counter
            return True
        if ahead <= -WINDOW or self._seen >> -ahead & 1:
            return False
        self._seen |= 1 << -ahead
        return True
