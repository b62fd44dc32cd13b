"""`chappe push devices`: a fleet of simulated devices."""

from __future__ import annotations

import asyncio
import math
import signal
import ssl
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from random import SystemRandom
from typing import Annotated, Any

import typer
import uvloop
from rich.console import Console
from rich.live import Live

from chappe.cli.options import console, print_json
from chappe.cli.push.asker import AppAsker, asking, signing
from chappe.cli.push.fleet.crew import Crew
from chappe.cli.push.fleet.feed import feed
from chappe.cli.push.fleet.fleet import Fleet, FleetOptions
from chappe.cli.push.fleet.granting import Granting
from chappe.cli.push.fleet.sources import need_files
from chappe.cli.push.fleet.tally import Tally
from chappe.cli.push.fleet.view import fleet_view
from chappe.errors import ConfigError

_COUNT_MAX = 1_000_000
_PROCESSES_MAX = 64
_LOOK_S = 0.25


@asking
def devices(
    asker: AppAsker,
    count: Annotated[int, typer.Option(help="So many devices.")],
    topics: Annotated[str, typer.Option(help="What all subscribe to, commas between.")] = "",
    rate: Annotated[float, typer.Option(help="Logins a second, of all together.")] = 500.0,
    processes: Annotated[int, typer.Option(help="Share them among so many processes.")] = 1,
    duration: Annotated[
        float, typer.Option(help="End so many seconds after all are logged in; 0: with Ctrl-C.")
    ] = 0.0,
    notes: Annotated[
        int, typer.Option("--notes", "-n", help="End after so many notes to all; 0: never.")
    ] = 0,
    heartbeat: Annotated[float, typer.Option(help="Seconds between a device's beats.")] = 120.0,
    spread: Annotated[
        bool | None,
        typer.Option(
            "--spread-addresses/--one-address",
            help="Connect from many of 127.0.0.0/8; else above 20,000 to a comet on loopback.",
        ),
    ] = None,
    prefix: Annotated[str, typer.Option(help="What their ids begin with.")] = "sim-",
    first: Annotated[int, typer.Option(hidden=True)] = 0,
    fed: Annotated[bool, typer.Option("--feed", hidden=True)] = False,
) -> None:
    """Simulate devices: they log in, get notes, acknowledge them and come back, until Ctrl-C.

    With --json: a line when all are logged in, and one at the end. Exit code 1 if any met an error.
    """
    _check(count=count, processes=processes, rate=rate, duration=duration, heartbeat=heartbeat)
    need_files(math.ceil(count / processes))
    options = FleetOptions(
        count=count,
        first=first,
        prefix=prefix,
        topics=tuple(name for name in topics.split(",") if name),
        logins_per_s=rate,
        heartbeat_s=heartbeat,
        spread=spread,
    )
    if fed:
        uvloop.run(_feed(asker, options))
        return
    end = _End(duration, notes)
    told = _Told(as_json=asker.as_json)
    if processes == 1:
        uvloop.run(_run_one(asker, options, end, told))
    else:
        uvloop.run(_run_many(asker, options, processes, end, told))


class _End:
    """When it is enough."""

    def __init__(self, duration_s: float, notes: int) -> None:
        self._duration_s = duration_s
        self._notes = notes
        self._complete_at: float | None = None
        self.complete = False

    def reached(self, tally: Tally, now: float) -> bool:
        """Whether to end now; notes when all have been logged in."""
        if tally.logged_in == tally.devices and not self.complete:
            self.complete = True
            self._complete_at = now
        if self._notes and tally.notes >= self._notes:
            return True
        timed = self._duration_s > 0 and self._complete_at is not None
        return timed and now - (self._complete_at or 0.0) >= self._duration_s


class _Told:
    """Tells how it goes: live on a terminal, in lines elsewhere."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._began = time.monotonic()
        self._was_complete = False
        self._last = (self._began, 0)
        self._per_s = 0.0
        shown = sys.stderr.isatty() and not as_json
        errors = Console(stderr=True, emoji=False)
        self._live = Live(console=errors, auto_refresh=False, transient=True) if shown else None

    def showing(self) -> AbstractContextManager[Any]:
        """As long as it goes on."""
        return self._live or nullcontext()

    def look(self, tally: Tally, *, complete: bool) -> None:
        """Tell what is new."""
        now = time.monotonic()
        at, notes = self._last
        if now - at >= 1.0:
            self._per_s = (tally.notes - notes) / (now - at)
            self._last = (now, tally.notes)
        if self._live is not None:
            self._live.update(self._view(tally), refresh=True)
        if complete and not self._was_complete:
            self._was_complete = True
            if self._as_json:
                print_json(self._summary("logged in", tally))
            else:
                console.print(f"{tally.logged_in:,} devices are logged in", highlight=False)

    def end(self, tally: Tally) -> None:
        """Tell all of it; raises Exit if there were errors."""
        if self._as_json:
            print_json(self._summary("end", tally))
        else:
            console.print(self._view(tally))
        if tally.errors:
            raise typer.Exit(1)

    def _view(self, tally: Tally) -> Any:
        return fleet_view(tally, time.monotonic() - self._began, self._per_s)

    def _summary(self, phase: str, tally: Tally) -> dict[str, Any]:
        elapsed_s = round(time.monotonic() - self._began, 3)
        return {"phase": phase, "elapsed_s": elapsed_s, **tally.summary()}


async def _feed(asker: AppAsker, options: FleetOptions) -> None:
    await feed(_fleet(asker, options))


async def _run_one(asker: AppAsker, options: FleetOptions, end: _End, told: _Told) -> None:
    fleet = _fleet(asker, options)
    running = asyncio.create_task(fleet.run())
    try:
        await _watch(lambda: fleet.tally, (fleet.failure, running), end, told)
    finally:
        running.cancel()
        # What is logged in is counted before it is hung up.
        seen = fleet.tally.logged_in, fleet.tally.connected
        await fleet.stop()
    fleet.tally.logged_in, fleet.tally.connected = seen
    told.end(fleet.tally)


async def _run_many(
    asker: AppAsker, options: FleetOptions, processes: int, end: _End, told: _Told
) -> None:
    crew = Crew(options.count, processes)
    try:
        await crew.start(_arguments(asker, options, processes))
        await _watch(crew.tally, (crew.failure,), end, told)
    finally:
        seen = crew.tally()
        await crew.stop()
    tally = crew.tally()
    tally.logged_in, tally.connected = seen.logged_in, seen.connected
    told.end(tally)


async def _watch(
    tally: Callable[[], Tally],
    failures: tuple[asyncio.Future[None], ...],
    end: _End,
    told: _Told,
) -> None:
    """Show how it goes until it is enough; raises what makes it of no use."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    stopped = asyncio.ensure_future(stop.wait())
    waits: tuple[asyncio.Future[Any], ...] = (stopped, *failures)
    with told.showing():
        while not end.reached(tally(), time.monotonic()):
            told.look(tally(), complete=end.complete)
            done, _ = await asyncio.wait(
                waits, timeout=_LOOK_S, return_when=asyncio.FIRST_COMPLETED
            )
            for each in done:
                each.result()
            if done:
                return
        told.look(tally(), complete=end.complete)
    stopped.cancel()


def _fleet(asker: AppAsker, options: FleetOptions) -> Fleet:
    proof = signing(asker.key, asker.secret) if asker.secret is not None else None
    asker.node()  # which says what is wrong with its options
    tls = ssl.create_default_context(cafile=str(asker.ca) if asker.ca is not None else None)
    return Fleet(options, Granting(asker.http, asker.key, proof, tls), tls, SystemRandom())


def _arguments(asker: AppAsker, options: FleetOptions, processes: int) -> list[str]:
    """The command line of one process of several; a secret goes by its file or the environment."""
    said: list[str] = ["push", "devices", "--app", asker.key, "--http", asker.http]
    for flag, value in (("--ca", asker.ca), ("--secret-file", asker.secret_file)):
        if value is not None:
            said += [flag, str(value)]
    if options.spread is not None:
        said.append("--spread-addresses" if options.spread else "--one-address")
    return [
        *said,
        *("--prefix", options.prefix, "--topics", ",".join(options.topics)),
        *("--rate", str(options.logins_per_s / processes)),
        *("--heartbeat", str(options.heartbeat_s)),
    ]


def _check(*, count: int, processes: int, rate: float, duration: float, heartbeat: float) -> None:
    if not 1 <= count <= _COUNT_MAX:
        raise ConfigError(f"--count: must be between 1 and {_COUNT_MAX:,}")
    if not 1 <= processes <= min(_PROCESSES_MAX, count):
        raise ConfigError(f"--processes: must be between 1 and {min(_PROCESSES_MAX, count)}")
    # So written, NaN is refused as well.
    if not 0 < rate < math.inf:
        raise ConfigError("--rate: must be above 0, and finite")
    if not 1 <= heartbeat < math.inf:
        raise ConfigError("--heartbeat: must be at least 1, and finite")
    if not 0 <= duration < math.inf:
        raise ConfigError("--duration: must be 0 or above, and finite")
