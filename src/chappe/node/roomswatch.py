"""The watch of `chappe rooms up`: tells its parent how many partitions there are and are to be.

A supervisor has no event loop; so one of its children looks at the registry for it, and says what
it found whenever that changes.
"""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from pathlib import Path

import structlog
import uvloop

from chappe.errors import ClusterError, ConfigError
from chappe.node.child import SIGNALS, Cord, Report
from chappe.node.keeper.kept import kept_registry
from chappe.node.layout import Layout
from chappe.node.options import NodeOptions
from chappe.registry.coordination import Coordination
from chappe.registry.url import open_registry
from chappe.rooms.doubling import lay_out
from chappe.rooms.lookout import Lookout
from chappe.rooms.paths import Partitioned, paths_of
from chappe.rooms.roll import Roll

log = structlog.get_logger()


def watch(
    cord: Cord,
    before: int,
    *,
    options: NodeOptions,
    layout: Layout,
    keeper: Path,
    kept: frozenset[str],
) -> None:
    """Live as a watch until told to stop; raises ConfigError or ClusterError when it cannot begin.

    The first one sees to it that there are as many partitions as are asked for.
    """
    structlog.contextvars.bind_contextvars(process="watch")
    uvloop.run(_watch(cord, options, None if before else layout, keeper, kept))


async def _watch(
    cord: Cord, options: NodeOptions, layout: Layout | None, keeper: Path, kept: frozenset[str]
) -> None:
    stop = asyncio.Event()
    cord.on_cut(stop.set)
    # Whoever signals the whole group must not take it from under those who still drain.
    for number in SIGNALS - {signal.SIGCHLD}:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    if "registry" in kept:
        registry = kept_registry(keeper, options.leases)
    else:
        registry = open_registry(options.registry, options.leases, name="watch")
    coordination = registry.coordinate("rooms")
    paths = paths_of(options.rooms)
    if layout is not None:
        await settle(coordination, paths.brokers, layout.partitions, "--partitions")
        if layout.independent:
            wanted = layout.router_partitions
            await settle(coordination, paths.independent, wanted, "--router-partitions")
    lookout = Lookout(
        coordination,
        paths,
        independent=options.rooms.independent_routers,
        lease_s=options.leases.lease_s,
        changed=_Teller(cord, independent=options.rooms.independent_routers),
    )
    lookout.start()
    await stop.wait()
    await lookout.stop()
    with suppress(ClusterError):
        await registry.close()


class _Teller:
    """Tells what is new in the figures, not who comes and goes."""

    def __init__(self, cord: Cord, *, independent: bool) -> None:
        self._cord = cord
        self._independent = independent
        self._told: dict[str, int] = {}

    def __call__(self, roll: Roll) -> None:
        figures = {"partitions": roll.partitions, "wanted": roll.wanted}
        if self._independent:
            figures["router_partitions"] = roll.router_partitions
            figures["router_wanted"] = roll.router_wanted
        if figures != self._told and all(figures.values()):
            self._told = figures
            self._cord.tell(Report(figures=figures))


async def settle(
    coordination: Coordination, paths: Partitioned, partitions: int, flag: str
) -> None:
    """Have so many partitions, if nobody has any; raises ConfigError or ClusterError."""
    there = await lay_out(coordination, paths, partitions)
    if there < partitions:
        raise ConfigError(
            f"{flag}: there are {there} by the registry; `chappe rooms double` makes more of them"
        )
    if there > partitions:
        log.warning("rooms.partitions", asked=partitions, registry=there)
