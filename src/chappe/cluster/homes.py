"""Homes: on which node each topic, service and queue lives.

Rendezvous hashing over the nodes that are up: every node computes the same home from the same view,
and when a node comes or goes only its own share moves.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from chappe.cluster.peer import Peer

_MASK = (1 << 64) - 1
_KNOWN_MAX = 100_000

_Node = tuple[int, str, Peer | None]


def stable_hash(*words: str) -> int:
    """A hash that is the same in every process."""
    return int.from_bytes(blake2b("\0".join(words).encode(), digest_size=8).digest())


def mix(value: int) -> int:
    """Spread 64 bits over 64 bits, so that each pair of node and name gets its own number."""
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & _MASK
    return value ^ (value >> 31)


class Homes:
    """Places addresses on the nodes that are up."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._nodes: list[_Node] = []
        self._known: dict[tuple[str, str], Peer | None] = {}
        self.see(())

    def see(self, peers: Iterable[Peer]) -> None:
        """These nodes are up, and this one."""
        nodes = [(peer.name, peer) for peer in peers]
        self._nodes = [(stable_hash(name), name, peer) for name, peer in nodes]
        self._nodes.append((stable_hash(self._name), self._name, None))
        self._known.clear()

    def home(self, app: str, address: str) -> Peer | None:
        """The node where an address lives; None when it is this one."""
        if len(self._nodes) == 1:
            return None
        key = (app, address)
        try:
            return self._known[key]
        except KeyError:
            pass
        if len(self._known) >= _KNOWN_MAX:
            self._known.clear()
        self._known[key] = peer = self._best(self._nodes, app, address)
        return peer

    def next_home(self, app: str, address: str) -> Peer | None:
        """The node where an address would live if this one were gone; None when it is alone."""
        others = [node for node in self._nodes if node[2] is not None]
        return self._best(others, app, address) if others else None

    def _best(self, nodes: list[_Node], app: str, address: str) -> Peer | None:
        point = stable_hash(app, address)
        # Two nodes with one number are told apart by name, on every node alike.
        return max(nodes, key=lambda node: (mix(point ^ node[0]), node[1]))[2]
