"""A worker: an ordinary node that shares its ports with the others of its machine."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import structlog
import uvloop

from chappe.node.child import SIGNALS, Cord, Report
from chappe.node.keeper.line import Line
from chappe.node.node import Node
from chappe.node.options import NodeOptions
from chappe.node.parts import Parts
from chappe.registry.agreement import Agreement
from chappe.registry.keeper import KeeperLedger
from chappe.registry.options import DEFAULTS, RegistryOptions
from chappe.registry.registry import Registry
from chappe.registry.roster import Roster
from chappe.registry.session import Session
from chappe.store.keeper import KeeperStore

_ORDERS = SIGNALS - {signal.SIGCHLD}


def work(
    cord: Cord,
    *,
    name: str,
    options: NodeOptions,
    keeper: Path,
    kept: frozenset[str],
    secret: bytes,
) -> None:
    """Live as a worker until told to stop, then drain; raises what its node's start raises.

    `kept` says which parts are the keeper's: the registry, the store, or both.
    """
    structlog.contextvars.bind_contextvars(process=name)
    uvloop.run(_work(cord, options, keeper, kept, secret))


async def _work(
    cord: Cord, options: NodeOptions, keeper: Path, kept: frozenset[str], secret: bytes
) -> None:
    stop = asyncio.Event()
    cord.on_cut(stop.set)
    loop = asyncio.get_running_loop()
    for number in _ORDERS:
        loop.add_signal_handler(number, stop.set)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    parts = Parts(
        registry=kept_registry(keeper) if "registry" in kept else None,
        store=KeeperStore(Line(keeper)) if "store" in kept else None,
        secret=secret if "registry" in kept else None,
        shared_ports=True,
    )
    node = Node(options, parts=parts)
    await node.start()
    cord.tell(Report(addresses=node.addresses()))
    await stop.wait()
    await node.drain()
    # The loop would restore the defaults when it closes: whoever asks twice must not turn a clean
    # exit into a death by signal.
    for number in _ORDERS:
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)


def kept_registry(keeper: Path, options: RegistryOptions = DEFAULTS) -> Registry:
    """Make the registry of the keeper at a socket; nothing is connected before its first use."""
    line = Line(keeper, timeout_s=options.timeout_s)
    session = Session(KeeperLedger(line, options.lease_s), users=2)
    poll_s = options.poll_s
    return Registry("memory", Roster(session, poll_s), Agreement(session, poll_s))
