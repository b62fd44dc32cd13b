"""`chappe rooms double`: twice as many partitions, while messages go on (R9)."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from chappe.cli.interrupt import Interrupted
from chappe.cli.options import Json, console, print_json
from chappe.errors import ClusterError, ConfigError
from chappe.registry.registry import Registry
from chappe.registry.url import open_registry
from chappe.rooms.doubling import Doubling, NotDoubled, Progress, Step, doubling_of
from chappe.rooms.options import RoomsOptions

_DATA = Path(".chappe")
_TIMEOUT_S_MAX = 86_400.0
_STEPS = {
    Step.READYING: "new partitions make ready",
    Step.CLEANING: "the number is set; what moved is cleaned up",
    Step.DONE: "done",
}


def double(
    routers: Annotated[
        bool, typer.Option("--routers", help="Those of independent routers, not of brokers.")
    ] = False,
    registry: Annotated[
        str | None, typer.Option(help="redis:// or zookeeper://; or say --data.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="The data folder of what runs here with a registry of its own."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="There is no way back.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds that each step may take.")] = 60.0,
    withdraw: Annotated[
        bool, typer.Option("--withdraw", help="Take back one that waits for its new partitions.")
    ] = False,
    system: Annotated[str, typer.Option(help="Of several that share a registry.")] = "pubsub",
    as_json: Json = False,
) -> None:
    """Double the partitions; begun ones are gone on with. Nothing is lost while it happens."""
    # So written, NaN is refused as well.
    if not 0 < timeout <= _TIMEOUT_S_MAX:
        raise ConfigError(f"--timeout: must be above 0, and at most {_TIMEOUT_S_MAX:.0f}")
    options = RoomsOptions(system=system, router_system=system)
    what = "partitions of routers" if routers else "partitions of brokers"
    if not yes and not withdraw:
        raise ConfigError(f"--yes: missing; the {what} would be doubled, and never be fewer again")
    found = _registry(registry, data)
    try:
        if withdraw:
            answer = asyncio.run(_with(found, options, routers, _withdraw))
        else:
            with _shown(as_json) as tell:
                run = _Run(tell, timeout)
                answer = asyncio.run(_with(found, options, routers, run))
    except NotDoubled as error:
        if not as_json:
            raise
        print_json({"ok": False, "reason": error.reason, "missing": list(error.missing)})
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        raise Interrupted("interrupted; run it again to go on, or with --withdraw") from None
    if as_json:
        print_json(answer)
    else:
        _tell(answer, what)


def _tell(answer: dict[str, Any], what: str) -> None:
    count = answer["partitions"]
    if answer["step"] == Step.CLEANING:
        console.print(f"[green]ok[/] {count} {what}; some still clean up:", highlight=False)
        for missing in answer["missing"]:
            console.print(Text(f"  {missing}"))
    else:
        console.print(f"[green]ok[/] {count} {what}", highlight=False)


def _registry(url: str | None, data: Path | None) -> Registry:
    if url is not None and data is not None:
        raise ConfigError("--registry: not together with --data, whose registry is its own")
    if url is not None:
        if url == "memory":
            raise ConfigError("--registry: memory is of one process; say --data DIR")
        return open_registry(url, name="double")
    # Here and not above: it is seldom wanted.
    from chappe.node.keeper.keeper import SOCKET  # noqa: PLC0415
    from chappe.node.keeper.kept import kept_registry  # noqa: PLC0415

    folder = data if data is not None else _DATA
    if not (folder / SOCKET).exists():
        raise ConfigError(
            f"--data: nothing with a registry of its own runs in {folder} (`chappe rooms up`, "
            "`chappe serve --workers N`); or say --registry"
        )
    return kept_registry(folder / SOCKET)


async def _with(
    registry: Registry, options: RoomsOptions, routers: bool, act: Callable[[Doubling], Any]
) -> dict[str, Any]:
    try:
        doubling = doubling_of(registry.coordinate("rooms"), options, routers=routers)
        answer: dict[str, Any] = await act(doubling)
        return answer
    finally:
        # What it was asked for is answered.
        with suppress(ClusterError):
            await registry.close()


async def _withdraw(doubling: Doubling) -> dict[str, Any]:
    return _answer(Step.DONE, await doubling.withdraw(), ())


class _Run:
    """A doubling that is told of."""

    def __init__(self, tell: Callable[[Progress], None], timeout_s: float) -> None:
        self._tell = tell
        self._timeout_s = timeout_s

    async def __call__(self, doubling: Doubling) -> dict[str, Any]:
        done = await doubling.run(self._tell, self._timeout_s)
        return _answer(done.step, done.partitions, done.missing)


def _answer(step: Step, partitions: int, missing: tuple[str, ...]) -> dict[str, Any]:
    return {"ok": True, "step": step, "partitions": partitions, "missing": list(missing)}


@contextmanager
def _shown(as_json: bool) -> Iterator[Callable[[Progress], None]]:
    """Show how far it is on standard error: a table for a person, a line for a log."""
    errors = Console(stderr=True, emoji=False)
    if as_json or not sys.stderr.isatty():
        yield _Lines(errors)
        return
    with Live(Text("looks at the registry"), console=errors, transient=True) as live:
        yield lambda progress: live.update(_view(progress))


class _Lines:
    """Says each step once, and then how much is missing."""

    def __init__(self, errors: Console) -> None:
        self._errors = errors
        self._last = ("", math.inf)

    def __call__(self, progress: Progress) -> None:
        now = (_STEPS[progress.step], len(progress.missing))
        if now != self._last:
            self._last = now
            line = f"{_numbers(progress)} partitions: {now[0]}"
            left = f", {now[1]} to go" if now[1] else ""
            self._errors.print(Text(line + left), soft_wrap=True)


def _numbers(progress: Progress) -> str:
    before, after = progress.partitions, progress.wanted
    return f"{before} -> {after}" if after > before else str(after)


def _view(progress: Progress) -> RenderableType:
    table = Table(
        "partition",
        "replica",
        "node",
        "state",
        title=f"{_numbers(progress)} partitions: {_STEPS[progress.step]}",
        title_justify="left",
    )
    for partition in range(progress.wanted):
        seats = progress.replicas.get(partition, ())
        for seat in seats:
            state = ("running", "green") if seat.running else ("init", "yellow")
            table.add_row(str(partition), str(seat.id), Text(seat.name), Text(*state))
        if not seats:
            table.add_row(str(partition), "", "", Text("nobody", "red"))
    return table
