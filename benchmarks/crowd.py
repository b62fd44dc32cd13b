"""A node with a crowd: as many connected endpoints as asked for, without a connection each.

    python crowd.py COUNT [options of `chappe serve`, as `--name NAME`]

Prints a `ready` line as `chappe serve` does, and ends by a signal.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal

import uvloop

from chappe.access.dev import DEV_APP
from chappe.cluster.options import ClusterOptions
from chappe.hub.session import Session
from chappe.node.node import Node
from chappe.node.options import EventsOptions, NodeOptions
from chappe.wire.encoding import STREAM
from chappe.wire.ops import Hello


class _Alive:
    """A sink that takes everything and always gives a sign of life."""

    session: Session

    def write(self, data: bytes) -> None: ...

    def ping(self) -> None:
        self.session.beats_missed = 0

    def close(self, code: int, reason: str) -> None: ...

    def abort(self) -> None: ...


def main() -> None:
    """Run until told to stop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    for name in ("port", "http-port", "tcp-port"):
        parser.add_argument(f"--{name}", type=int, default=0)
    for name in ("name", "data", "registry", "cluster-secret-file"):
        parser.add_argument(f"--{name}", required=True)
    uvloop.run(_live(parser.parse_args()))


async def _live(options: argparse.Namespace) -> None:
    node = Node(
        NodeOptions(
            dev=True,
            port=options.port,
            http_port=options.http_port,
            tcp_port=options.tcp_port,
            name=options.name,
            data=options.data,
            store="memory",
            registry=options.registry,
            drain_s=0.0,
            cluster=ClusterOptions(port=0, secret=options.cluster_secret_file),
            events=EventsOptions(enabled=False),
        )
    )
    await node.start()
    sink = _Alive()
    sink.session = node.hub.open("crowd", STREAM, sink, "here")
    node.hub.admit(sink.session, Hello(as_="user:crowd"))
    endpoints = node.hub.apps[DEV_APP].endpoints
    for number in range(1, options.count):
        endpoints.bind(f"user:{number:07d}", sink.session)
    stop = asyncio.Event()
    for order in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(order, stop.set)
    print(f"ready {json.dumps(node.addresses())}", flush=True)
    await stop.wait()
    await node.drain()


if __name__ == "__main__":
    main()
