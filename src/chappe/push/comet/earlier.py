"""Earlier sessions: what devices had in their hands when they left.

A device comes back to the comet it was on, mostly. What it is handed then for the second time is
known here, within a bound: tallies count a client once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection

# Clients that are remembered, and ids of each.
CLIENTS_MAX = 10_000
IDS_MAX = 64


class Earlier:
    """Notes that were handed to clients and not acknowledged, the latest of each."""

    __slots__ = ("_clients",)

    def __init__(self) -> None:
        self._clients: OrderedDict[str, frozenset[str]] = OrderedDict()

    def keep(self, client: str, ids: Collection[str]) -> None:
        """A client left with these."""
        self._clients[client] = frozenset(list(ids)[-IDS_MAX:])
        self._clients.move_to_end(client)
        if len(self._clients) > CLIENTS_MAX:
            self._clients.popitem(last=False)

    def add(self, client: str, ids: Collection[str]) -> None:
        """A client was handed these as well."""
        before = self._clients.get(client, frozenset())
        self.keep(client, [*(before - set(ids)), *ids])

    def had(self, client: str, note_id: str) -> bool:
        """Whether a client was handed a note before, as far as is remembered."""
        return note_id in self._clients.get(client, ())
