"""The watch of `chappe rooms up`: tells its parent how many partitions there are and are to be.

A supervisor has no event loop; so one of its children looks at the registry for it, and says what
it found whenever that changes. A registry of its own forgets everything when all stop; so the watch
writes down how many partitions there were, and there are as many at the next start.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path

import msgspec
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
from chappe.rooms.partition import PARTITIONS_MAX, is_power_of_two
from chappe.rooms.paths import Partitioned, Paths, paths_of
from chappe.rooms.roll import Roll

log = structlog.get_logger()

# In the data folder.
NUMBERS = "partitions"
_numbers = msgspec.json.Decoder(dict[str, int])
# How soon it is noticed that something is watched no more.
_CHECK_S = 1.0


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
    numbers = Numbers(keeper.parent / NUMBERS) if "registry" in kept else None
    if layout is not None:
        flags = [(paths.brokers, layout.partitions, "--partitions")]
        if layout.independent:
            flags.append((paths.independent, layout.router_partitions, "--router-partitions"))
        for divided, asked, flag in flags:
            wanted = asked if numbers is None else numbers.recall(divided.number, asked)
            await settle(coordination, divided, wanted, flag)
    lookout = Lookout(
        coordination,
        paths,
        independent=options.rooms.independent_routers,
        lease_s=options.leases.lease_s,
        changed=_Teller(cord, paths, numbers, independent=options.rooms.independent_routers),
    )
    lookout.start()
    try:
        await stand(lookout, stop)
    finally:
        await lookout.stop()
        with suppress(ClusterError):
            await registry.close()


async def stand(lookout: Lookout, stop: asyncio.Event) -> None:
    """Wait until told to stop; raises ClusterError when something is watched no more, so that the
    parent puts another in this one's place."""
    while not stop.is_set():
        if lookout.dead:
            raise ClusterError(f"{', '.join(lookout.dead)} has ended by a mistake: see the log")
        with suppress(TimeoutError):
            async with asyncio.timeout(_CHECK_S):
                await stop.wait()


class _Teller:
    """Tells what is new in the figures, not who comes and goes."""

    def __init__(
        self, cord: Cord, paths: Paths, numbers: Numbers | None, *, independent: bool
    ) -> None:
        self._cord = cord
        self._paths = paths
        self._numbers = numbers
        self._independent = independent
        self._told: dict[str, int] = {}

    def __call__(self, roll: Roll) -> None:
        figures = {"partitions": roll.partitions, "wanted": roll.wanted}
        if self._independent:
            figures["router_partitions"] = roll.router_partitions
            figures["router_wanted"] = roll.router_wanted
        if figures != self._told and all(figures.values()):
            self._told = figures
            if self._numbers is not None:
                self._numbers.note(self._paths.brokers.number, roll.partitions)
                self._numbers.note(self._paths.independent.number, roll.router_partitions)
            self._cord.tell(Report(figures=figures))


class Numbers:
    """The most partitions that there were, by their path in the registry, kept in a file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._most: dict[str, int] = {}
        try:
            self._most = _numbers.decode(file.read_bytes())
        except FileNotFoundError:
            pass
        except (OSError, msgspec.MsgspecError) as error:
            log.warning("rooms.partitions.unreadable", file=str(file), reason=str(error))

    def recall(self, path: str, asked: int) -> int:
        """With how many partitions to begin: those that there were, if they were more (R9)."""
        most = self._most.get(path, 0)
        if most <= asked or most > PARTITIONS_MAX or not is_power_of_two(most):
            return asked
        log.warning("rooms.partitions.remembered", path=path, asked=asked, remembered=most)
        return most

    def note(self, path: str, number: int) -> None:
        """Write a number down that is larger than any before."""
        if number <= self._most.get(path, 0):
            return
        self._most[path] = number
        new = self._file.with_name(f"{self._file.name}.new")
        try:
            new.write_bytes(msgspec.json.encode(self._most))
            os.replace(new, self._file)
        except OSError as error:
            log.warning("rooms.partitions.unwritten", file=str(new), reason=str(error))


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
