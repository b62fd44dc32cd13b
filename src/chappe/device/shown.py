"""The ids of what was shown, so that nothing is shown twice (P7)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


class Shown:
    """A set that holds the last of what was put into it."""

    __slots__ = ("_ids", "ids_max")

    def __init__(self, ids: Iterable[str], ids_max: int) -> None:
        self.ids_max = ids_max
        self._ids: dict[str, None] = {}
        for shown in ids:
            self.add(shown)

    def __contains__(self, id: str) -> bool:
        return id in self._ids

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids)

    def add(self, id: str) -> None:
        """Take an id; the oldest goes if there are too many."""
        self._ids.pop(id, None)
        self._ids[id] = None
        if len(self._ids) > self.ids_max:
            del self._ids[next(iter(self._ids))]
