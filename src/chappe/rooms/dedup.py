"""Copies: a message that came before is not delivered again (R11, R13)."""

from __future__ import annotations

from collections import OrderedDict


class Dedup:
    """The ids of the messages that came last; the one longest unheard of is forgotten first."""

    __slots__ = ("_ids", "_ids_max")

    def __init__(self, ids_max: int) -> None:
        self._ids_max = ids_max
        self._ids: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._ids)

    def first(self, id: int) -> bool:
        """Whether a message comes for the first time, as far as is remembered."""
        ids = self._ids
        if id in ids:
            # Its other copies may still be under way.
            ids.move_to_end(id)
            return False
        ids[id] = None
        if len(ids) > self._ids_max:
            ids.popitem(last=False)
        return True
