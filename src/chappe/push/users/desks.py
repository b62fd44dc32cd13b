"""A comet and the desk of users in one process: whom one does not know, the other may."""

from __future__ import annotations

from chappe.push.comets import CometDesk, Handed
from chappe.push.note import Note
from chappe.wire.pushlink import Close, Subscribed, Withdraw


class Desks:
    """Both, as one."""

    def __init__(self, users: CometDesk, comet: CometDesk) -> None:
        self._users = users
        self._comet = comet

    def deliver(self, note: Note, clients: list[str], came_from: str = "") -> Handed:
        """Hand a note to clients that are here, be they users or devices; raises Overload."""
        users = self._users.deliver(note, clients, came_from)
        if not users.absent:
            return users
        devices = self._comet.deliver(note, list(users.absent), came_from)
        return Handed(users.taken + devices.taken, devices.absent)

    def broadcast(self, note: Note, came_from: str = "") -> Handed:
        """Hand a topic's note to devices that subscribe; raises Overload."""
        return self._comet.broadcast(note, came_from)

    def close(self, op: Close) -> None:
        """End what a client has here."""
        self._users.close(op)
        self._comet.close(op)

    def withdraw(self, op: Withdraw) -> None:
        """Take a note back."""
        self._users.withdraw(op)
        self._comet.withdraw(op)

    def subscribed(self, op: Subscribed) -> None:
        """Read a client's topics anew."""
        self._comet.subscribed(op)

    def look(self) -> None:
        """Look up what waits for all who are here."""
        self._users.look()
        self._comet.look()
