"""A registration: a consumer's name at a queue, said again after each reconnect."""

from __future__ import annotations

from collections.abc import Callable

from chappe.client.notice import Notice, Stopped
from chappe.client.selection import Selection
from chappe.errors import RequestError
from chappe.wire.ops import Register, Reply


class Registration:
    """Holds a name for as long as the client lives; `lost` hears when a hub refuses it."""

    def __init__(
        self, selection: Selection, new: bool, lost: Callable[[RequestError], None]
    ) -> None:
        self._selection = selection
        self._new = new
        self._lost = lost
        # Whether the hub has taken it, so that it is said again on a new connection.
        self.standing = False

    @property
    def wanted(self) -> bool:
        """Whether it is still to be held."""
        return self.standing

    def ask(self) -> Register:
        """What to say to the hub."""
        return self._selection.register(self._new)

    def taken(self, reply: Reply) -> None:
        """The name is this client's."""
        self.standing = True

    def refused(self, error: RequestError) -> Notice:
        """Somebody else has it, after a reconnect."""
        self.standing = False
        self._lost(error)
        return Stopped(self._selection.queue, error)
