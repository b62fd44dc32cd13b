"""A worker: an ordinary node that shares its ports with the others of its machine."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping
from pathlib import Path

import msgspec
import structlog
import uvloop

from chappe.node.child import SIGNALS, Cord, Report
from chappe.node.gathering import Gathering
from chappe.node.keeper.kept import kept_registry, kept_store
from chappe.node.opening import open_node
from chappe.node.options import EVENTS, NodeOptions
from chappe.node.parts import Parts, kept_parts

_ORDERS = SIGNALS - {signal.SIGCHLD}


def work(
    cord: Cord,
    before: int,
    *,
    name: str,
    folders: Mapping[str, Path],
    options: NodeOptions,
    keeper: Path,
    kept: frozenset[str],
    secret: bytes,
) -> None:
    """Live as a worker until told to stop, then drain; raises what its node's start raises.

    `kept` says which parts are the keeper's: the registry, the store, or both.
    """
    structlog.contextvars.bind_contextvars(process=name)
    gathering = Gathering(name, folders)
    uvloop.run(_work(cord, options, gathering, keeper, kept, secret))


async def _work(
    cord: Cord,
    options: NodeOptions,
    gathering: Gathering,
    keeper: Path,
    kept: frozenset[str],
    secret: bytes,
) -> None:
    stop = asyncio.Event()
    cord.on_cut(stop.set)
    loop = asyncio.get_running_loop()
    # One without clients ends when its cord is cut, and heeds no signal: whoever signals the whole
    # group must not take it from under gateways that still drain.
    heeded = _ORDERS if options.has_hub or options.has_push else ()
    for number in _ORDERS:
        signal.signal(number, signal.SIG_IGN)
    for number in heeded:
        loop.add_signal_handler(number, stop.set)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    parts = Parts(
        registry=kept_registry(keeper, options.leases) if "registry" in kept else None,
        store=kept_store(keeper) if "store" in kept else None,
        secret=secret if "registry" in kept else None,
        gather=gathering.gather,
        # Those that were reserved for it.
        shared_ports=options.http_port != 0,
    )
    node = open_node(options, parts)
    if await node.start_unless(stop):
        await gathering.start(node.counts)
        cord.tell(Report(addresses=node.addresses()))
        try:
            await node.run_until(stop)
        finally:
            gathering.stop()
    # The loop would restore the defaults when it closes: whoever asks twice must not turn a clean
    # exit into a death by signal.
    for number in heeded:
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)


def worker_options(shared: NodeOptions, number: int, data: Path, name: str = "") -> NodeOptions:
    """The options of one worker, numbered from 1 and named by that unless told otherwise.

    With a registry of their own, workers know and link to each other alone, on this machine. With
    one that is shared with others each is a node like any: it has a name and a port of its own.
    """
    cluster, events, rooms, push = shared.cluster, shared.events, shared.rooms, shared.push
    if not events.folder:
        # Whoever reads what they recorded reads it in one place.
        events = msgspec.structs.replace(events, folder=str(Path(shared.data) / EVENTS))
    if not push.folder:
        # What is embedded of push, all of them have in common.
        push = msgspec.structs.replace(push, folder=shared.data)
    node_number = None
    if "registry" in kept_parts(shared):
        name, node_number = name or f"worker-{number}", (shared.number or 0) + number - 1
        cluster = msgspec.structs.replace(
            cluster, host="127.0.0.1", port=0, advertise="", secret="", tls=None
        )
        rooms = msgspec.structs.replace(rooms, host="127.0.0.1", port=0, advertise="")
        push = msgspec.structs.replace(push, port=0)
    else:
        if shared.name and not name:
            name = f"{shared.name}-{number}"
        if shared.number is not None:
            node_number = shared.number + number - 1
        if cluster.port:
            cluster = msgspec.structs.replace(cluster, port=cluster.port + number - 1)
        if rooms.port:
            rooms = msgspec.structs.replace(rooms, port=rooms.port + number - 1)
        if push.port:
            push = msgspec.structs.replace(push, port=push.port + number - 1)
    return msgspec.structs.replace(
        shared,
        name=name,
        number=node_number,
        data=str(data),
        cluster=cluster,
        events=events,
        rooms=rooms,
        push=push,
    )
