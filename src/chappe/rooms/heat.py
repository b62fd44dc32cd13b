"""Heat: the rooms of a broker that have most messages, in bounded memory.

Rooms are counted until there are too many; then the colder half is forgotten. A room that has a
notable share of all messages is never in that half for long.
"""

from __future__ import annotations

from heapq import nlargest
from typing import NamedTuple

# Rooms that are counted, and that are told of.
ROOMS_MAX = 1024
HOTTEST = 20


class Hot(NamedTuple):
    """A room, and how many messages it had, and copies of them to gateways."""

    key: str
    messages: int
    copies: int


class Heat:
    """Counts messages by room since it was last looked at."""

    __slots__ = ("_counts", "_most")

    def __init__(self, most: int = ROOMS_MAX) -> None:
        self._counts: dict[str, list[int]] = {}
        self._most = most

    def __len__(self) -> int:
        return len(self._counts)

    def count(self, key: str, copies: int) -> None:
        """A room had a message, copied so many times."""
        counted = self._counts.get(key)
        if counted is None:
            if len(self._counts) >= self._most:
                self._forget()
            self._counts[key] = [1, copies]
        else:
            counted[0] += 1
            counted[1] += copies

    def take(self, most: int = HOTTEST) -> list[Hot]:
        """The hottest first; counting begins anew."""
        counts, self._counts = self._counts, {}
        hottest = nlargest(most, counts.items(), key=_messages)
        return [Hot(key, messages, copies) for key, (messages, copies) in hottest]

    def _forget(self) -> None:
        """Keep the hotter half; it was sorted for so many messages that each costs the same."""
        self._counts = dict(nlargest(self._most // 2, self._counts.items(), key=_messages))


def _messages(item: tuple[str, list[int]]) -> int:
    return item[1][0]
