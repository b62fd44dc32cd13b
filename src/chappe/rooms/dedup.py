"""Copies: a message that came before is not delivered again (R2, R11, R13).

The ids of the last messages are remembered. A copy may come after its id was forgotten: whoever
was stopped for long and goes on sends what it had. So of each publisher's node the largest id that
was forgotten is kept as well, and nothing up to that is new any more:

    remembered: 7 9     forgotten up to 5     6, 8, 10 are new     7 is a copy     4 is too old

What was never here and is too old is lost, which may be; to come twice may not. As ids of one node
grow, that is only what came later than so many others that the memory is full of them. Clocks of
nodes are never compared.
"""

from __future__ import annotations

from collections import OrderedDict

from chappe.ids import NODE_MAX, SEQUENCE_BITS


class Dedup:
    """The ids of the messages that came last; the one longest unheard of is forgotten first."""

    __slots__ = ("_floors", "_ids", "_ids_max")

    def __init__(self, ids_max: int) -> None:
        self._ids_max = ids_max
        self._ids: OrderedDict[int, None] = OrderedDict()
        # By the node that gave an id, of which there are no more than NODE_MAX.
        self._floors: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, id: int) -> bool:
        """Whether a message is remembered."""
        return id in self._ids

    def first(self, id: int) -> bool:
        """Whether a message certainly comes for the first time; it is remembered then."""
        ids = self._ids
        if id in ids:
            # Its other copies may still be under way.
            ids.move_to_end(id)
            return False
        if self._floors and id <= self._floors.get((id >> SEQUENCE_BITS) & NODE_MAX, -1):
            return False
        ids[id] = None
        if len(ids) > self._ids_max:
            self._forget()
        return True

    def _forget(self) -> None:
        oldest, _ = self._ids.popitem(last=False)
        node = (oldest >> SEQUENCE_BITS) & NODE_MAX
        if oldest > self._floors.get(node, -1):
            self._floors[node] = oldest
