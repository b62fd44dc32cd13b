"""Two nodes of one cluster: the load's senders on one of them, its receivers on the other."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.server import Server, start_chappe, start_redis
from chappe.access.dev import DEV_APP
from chappe.cluster.homes import mix, stable_hash

NAMES = ("one", "two")
_TOPIC = "topic:t"


@dataclass(frozen=True)
class Route:
    """One way through the cluster: those who receive are on one node, those who send on the other.

    It is a server to the load: its ports are two, its processes those of both nodes.
    """

    name: str
    receiving: Server
    sending: Server

    @property
    def ports(self) -> Mapping[str, str]:
        """Where to receive, and where to send, for each protocol."""
        there = self.sending.ports
        return {name: f"{port},{there[name]}" for name, port in self.receiving.ports.items()}

    def pids(self) -> list[int]:
        """The processes of both nodes."""
        return [*self.receiving.pids(), *self.sending.pids()]

    def settle(self) -> None:
        """Wait until both have let go of the load's connections."""
        self.receiving.settle()
        self.sending.settle()


class Nodes:
    """Two linked nodes, which have found each other by a Redis of their own."""

    def __init__(self, chappe: str) -> None:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="chappe-nodes-")))
            secret = folder / "secret"
            secret.write_text(secrets.token_hex(32))
            registry = start_redis()
            stack.callback(registry.stop)
            self._nodes: dict[str, Server] = {}
            for name in NAMES:
                words = [
                    f"--registry redis://127.0.0.1:{registry.ports['redis']}",
                    f"--name {name}",
                ]
                words += [f"--cluster-secret-file {secret}", "--cluster-port 0"]
                self._nodes[name] = start_chappe(" ".join((chappe, *words)))
                stack.callback(self._nodes[name].stop)
            for node in self._nodes.values():
                node.rest()  # the link is there, too, now
            self._stack = stack.pop_all()

    def node(self, name: str) -> Server:
        """One of them."""
        return self._nodes[name]

    def home_sends(self) -> Route:
        """Senders on the node where the load's topic lives."""
        home = home_of(_TOPIC)
        return Route("home sends", self._nodes[_other(home)], self._nodes[home])

    def home_receives(self) -> Route:
        """Receivers on the node where the load's topic lives."""
        home = home_of(_TOPIC)
        return Route("home receives", self._nodes[home], self._nodes[_other(home)])

    def stop(self) -> None:
        """Stop the nodes, then their Redis."""
        self._stack.close()


def home_of(address: str) -> str:
    """The node where an address of the load lives, when both are there."""
    point = stable_hash(DEV_APP, address)
    return max(NAMES, key=lambda name: (mix(point ^ stable_hash(name)), name))


def _other(name: str) -> str:
    return NAMES[1 - NAMES.index(name)]
