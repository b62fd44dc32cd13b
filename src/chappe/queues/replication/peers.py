"""What replication asks of the cluster around it, and of the broker that it serves."""

from __future__ import annotations

from typing import Protocol

from chappe.log.journal import Journal
from chappe.wire.nodeop import NodeOp


class Peers(Protocol):
    """The other nodes."""

    def linked(self) -> list[str]:
        """Those that can be reached now."""
        ...

    def preferred(self, broker: str) -> list[str]:
        """The same, in the order in which they should have a broker's copies."""
        ...

    def tell(self, node: str, op: NodeOp) -> None:
        """Say something short; nothing happens when the node is not linked."""
        ...

    def send(self, node: str, op: NodeOp, size: int) -> bool:
        """Say something of that size if there is room on the link; whether there was."""
        ...


class Brokers(Protocol):
    """The brokers of this node: journals, and the queues in them."""

    def open_journal(self, broker: str) -> Journal:
        """Make a broker's journal, not recovered yet; replication closes it."""
        ...

    async def load(self, broker: str, journal: Journal) -> None:
        """This node is about to be master: recover the journal and fold what it gives.

        Nothing may be appended yet. Raises StorageError or OSError.
        """
        ...

    def on_master(self, broker: str, journal: Journal) -> None:
        """This node is master: what was loaded is in force, and may be appended to."""
        ...

    def on_fenced(self, broker: str, reason: str) -> None:
        """It is master no more, or will not become it after all: let go of the queues.

        Whatever waited for the journal was told that its outcome is unknown; the journal is closed
        after this.
        """
        ...
