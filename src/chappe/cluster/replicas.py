"""The links between nodes, as the replication of journals uses them (Q10)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from chappe.cluster.homes import mix, stable_hash
from chappe.cluster.peer import Peer
from chappe.wire.nodeop import NodeOp


class ReplicaPeers:
    """The other nodes, by name."""

    def __init__(
        self, peers: Callable[[], Iterable[Peer]], find: Callable[[str], Peer | None]
    ) -> None:
        self._peers = peers
        self._find = find

    def linked(self) -> list[str]:
        """Those that can be reached now."""
        return [peer.name for peer in self._peers()]

    def preferred(self, broker: str) -> list[str]:
        """The same, in the order in which they should have a broker's copies."""
        point = stable_hash("broker", broker)
        return sorted(
            self.linked(), key=lambda name: (mix(point ^ stable_hash(name)), name), reverse=True
        )

    def tell(self, node: str, op: NodeOp) -> None:
        """Say something short; nothing happens when the node is not linked."""
        peer = self._find(node)
        if peer is not None:
            peer.tell(op)

    def send(self, node: str, op: NodeOp, size: int) -> bool:
        """Say something of that size if there is room on the link; whether there was."""
        peer = self._find(node)
        if peer is None or peer.full:
            return False
        peer.tell(op, size)
        return True
