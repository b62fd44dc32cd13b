"""`chappe rooms double`: twice as many partitions, while messages go on (R9)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from chappe.cli.interrupt import Interrupted
from chappe.cli.options import Json, console, print_json
from chappe.cli.serve import log_to_stderr
from chappe.errors import ClusterError, ConfigError
from chappe.registry.coordination import Coordination
from chappe.registry.registry import Registry
from chappe.registry.url import open_registry
from chappe.rooms.doubling import Doubling, NotDoubled, Progress, Step, doubling_of
from chappe.rooms.options import RoomsOptions

_DATA = Path(".chappe")
_TIMEOUT_S_MAX = 86_400.0
# Of those that something waits for, so many are named in a line.
_NAMED_MAX = 3
_STEPS = {
    Step.RESTING: "nothing is begun; one that was withdrawn is not over",
    Step.READYING: "new partitions make ready",
    Step.CLEANING: "the number is set; what moved is cleaned up",
    Step.DONE: "done",
}
_DONE = {Step.READYING: "ready", Step.CLEANING: "cleaned up"}


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
    replicas: Annotated[
        int | None,
        typer.Option(help="That each new partition is to have at least [as many as its sibling]."),
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
    if replicas is not None and replicas < 1:
        raise ConfigError("--replicas: must be 1 or above")
    options = RoomsOptions(system=system, router_system=system)
    what = "partitions of routers" if routers else "partitions of brokers"
    if not yes and not withdraw:
        raise ConfigError(f"--yes: missing; the {what} would be doubled, and never be fewer again")
    # What is tried again and again is no news.
    log_to_stderr(lasting=False)
    found = _registry(registry, data)
    make = partial(doubling_of, options=options, routers=routers, replicas=replicas)
    run = None
    try:
        if withdraw:
            answer = asyncio.run(_with(found, make, _withdraw))
        else:
            with _shown(as_json) as tell:
                run = _Run(tell, timeout)
                answer = asyncio.run(_with(found, make, run))
    except NotDoubled as error:
        if not as_json:
            raise
        print_json({"ok": False, "reason": error.reason, "missing": list(error.missing)})
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted; {_advice(run)}") from None
    if as_json:
        print_json(answer)
    elif withdraw:
        count = answer["partitions"]
        told = f"the doubling of {what} is taken back; there are {count}, as before"
        console.print(f"[green]ok[/] {told}", highlight=False)
    else:
        _tell(answer, what)


def _advice(run: _Run | None) -> str:
    """What may be done after an interruption: there is no way back once the number is set."""
    step = None if run is None else run.step
    if step is None or step is Step.RESTING:
        return "nothing was begun by this run; run it again"
    if step is Step.READYING:
        return "run it again to go on, or with --withdraw"
    return "the number is set; run it again to watch the cleaning up"


def _tell(answer: dict[str, Any], what: str) -> None:
    count = answer["partitions"]
    if answer["step"] == Step.CLEANING:
        console.print(f"[green]ok[/] {count} {what}; some still clean up:", highlight=False)
        for missing in answer["missing"]:
            console.print(Text(f"  {missing}"))
    elif answer["resumed"]:
        told = f"the doubling to {count} {what} that was begun is complete"
        again = f"; run it again for {2 * count}"
        console.print(f"[green]ok[/] {told}{again}", highlight=False, soft_wrap=True)
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
    registry: Registry, make: Callable[[Coordination], Doubling], act: Callable[[Doubling], Any]
) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = await act(make(registry.coordinate("rooms")))
        return answer
    finally:
        # What it was asked for is answered.
        with suppress(ClusterError):
            await registry.close()


async def _withdraw(doubling: Doubling) -> dict[str, Any]:
    return _answer(Step.DONE, await doubling.withdraw(), (), resumed=False)


class _Run:
    """A doubling that is told of."""

    def __init__(self, tell: Callable[[Progress], None], timeout_s: float) -> None:
        self._tell = tell
        self._timeout_s = timeout_s
        # How far it is, so far as is known.
        self.step: Step | None = None

    async def __call__(self, doubling: Doubling) -> dict[str, Any]:
        done = await doubling.run(self._note, self._timeout_s)
        return _answer(done.step, done.partitions, done.missing, resumed=done.resumed)

    def _note(self, progress: Progress) -> None:
        self.step = progress.step
        self._tell(progress)


def _answer(
    step: Step, partitions: int, missing: tuple[str, ...], *, resumed: bool
) -> dict[str, Any]:
    return {
        "ok": True,
        "step": step,
        "partitions": partitions,
        "missing": list(missing),
        "resumed": resumed,
    }


@contextmanager
def _shown(as_json: bool) -> Iterator[Callable[[Progress], None]]:
    """Show how far it is on standard error: one line that changes, or a line each for a log."""
    errors = Console(stderr=True, emoji=False)
    if as_json or not sys.stderr.isatty():
        yield _Lines(errors)
        return
    with Live(Text("looks at the registry"), console=errors, transient=True) as live:
        yield lambda progress: live.update(Text(line(progress)))


class _Lines:
    """Says what is new, once."""

    def __init__(self, errors: Console) -> None:
        self._errors = errors
        self._last = ""

    def __call__(self, progress: Progress) -> None:
        now = line(progress)
        if now != self._last:
            self._last = now
            self._errors.print(Text(now), soft_wrap=True)


def line(progress: Progress) -> str:
    """How far a doubling is."""
    before, after = progress.partitions, progress.wanted
    numbers = f"{before} -> {after}" if after > before else str(after)
    word = _DONE.get(progress.step)
    far = f", {progress.ready} of {progress.of} {word}" if word else ""
    if progress.step is Step.RESTING:
        named, more = progress.missing[:_NAMED_MAX], len(progress.missing) - _NAMED_MAX
        far = f": {'; '.join(named)}" + (f"; and {more} more" if more > 0 else "")
    return f"{numbers} partitions: {_STEPS[progress.step]}{far}"
