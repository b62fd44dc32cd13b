"""A whole node inside a test's loop: real sockets on free ports, a data folder of its own."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from chappe.log.options import JournalOptions
from chappe.node.node import Node
from chappe.node.options import EventsOptions, NodeOptions
from chappe.rooms.options import RoomsOptions

PORTS = {"port": 0, "http_port": 0, "tcp_port": 0, "comet_port": 0}
# Whoever leaves a cluster says so for two beats of rooms, also where nobody is in one.
ROOMS_UNUSED = RoomsOptions(beat_s=0.1)


def options_of(folder: Path, **changes: Any) -> NodeOptions:
    """Options for a test: development, free ports, no wait for clients at the end."""
    usual: dict[str, Any] = {"dev": True, "data": str(folder / "data"), "drain_s": 0.0, **PORTS}
    # Little is set apart on the disk for what waits to be written.
    usual["journal"] = JournalOptions(batch_bytes_max=1024 * 1024)
    usual["events"] = EventsOptions(enabled=False)
    return NodeOptions(**(usual | changes))


@asynccontextmanager
async def running(folder: Path, **changes: Any) -> AsyncIterator[Node]:
    """Start a node and drain it at the end, unless the test did."""
    thresholds = gc.get_threshold()
    node = Node(options_of(folder, **changes))
    try:
        await node.start()
        yield node
    finally:
        if not node.hub.draining:
            await node.drain()
        # A node arranges the collector for itself alone; here it is one guest of many.
        gc.set_threshold(*thresholds)
        gc.unfreeze()
