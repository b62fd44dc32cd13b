"""`chappe push storage copy`: what push remembers, carried to larger places, offline (P14)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from chappe.cli.interrupt import Interrupted
from chappe.cli.options import Json, console, print_json
from chappe.cli.push.places import check_source, read_urls, shown
from chappe.clock import SystemClock
from chappe.errors import ConfigError, StorageError
from chappe.push.state.record import KINDS
from chappe.push.state.url import NAMES, Opened, open_places
from chappe.push.storage import Compared, Copy, Moved
from chappe.push.storage.copy import alive

app = typer.Typer(help="Where push keeps what it knows: move it.", no_args_is_help=True)

_Places = Mapping[str, Opened]
_PLACE = "one address for all five states, or a .toml or .json file that names each"
_SEALED = (
    "Secrets of apps and the identity that devices know are sealed, and were copied sealed: the "
    "processes need the key they had. Of a cluster that is made of its secret, which must stay the "
    "same; of a node alone it is the file push.key in its data folder: give it to every process as "
    "push.key."
)


@app.command("copy")
def copy(
    source: Annotated[str, typer.Option("--from", help=f"What to copy: {_PLACE}.")],
    target: Annotated[str, typer.Option("--to", help="Where to: the same.")],
    state: Annotated[
        str, typer.Option(help="Only these, with commas: meta, user, message, topic.")
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only count what there is; look at no target.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="No process of push runs, on either.")] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a copy that was interrupted.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also where it seems that processes of push run.")
    ] = False,
    watch: Annotated[
        float, typer.Option(help="Seconds to watch for processes of push: twice their sweep_s.")
    ] = 11.0,
    as_json: Json = False,
) -> None:
    """Copy what push remembers into places with nothing in them, read it back and compare.

    For more room: from SQLite to Redis, from one Redis to five, to more buckets. Push stands still
    meanwhile; the source stays as it is. Routes are not copied: devices connect again.
    """
    states = _states(state)
    if not dry_run and not yes:
        raise ConfigError("--yes: missing; push must stand still while it is copied")
    # So written, NaN is refused as well.
    if not 0 <= watch < 3600:
        raise ConfigError("--watch: must be between 0 and 3600")
    here, there = read_urls(source, "--from"), read_urls(target, "--to")
    for name in states:
        if shown(here[name], "--from") == shown(there[name], "--to"):
            raise ConfigError(f"--to: {name} is there already: it is where --from is")
    check_source(here, force=force)
    run = _Run(here, there, states, watch_s=watch, force=force, resume=resume)
    try:
        with _progress(quiet=as_json) as bar:
            asyncio.run(run.count(bar) if dry_run else run.copy(bar))
    except KeyboardInterrupt:
        raise Interrupted("interrupted; run it again with --resume to go on") from None
    _tell(run, as_json=as_json, dry_run=dry_run)


def _states(text: str) -> list[str]:
    named = [name.strip() for name in text.split(",")] if text else list(KINDS)
    for name in named:
        if name == "route":
            raise ConfigError("--state: routes are not copied: devices connect again")
        if name not in KINDS:
            raise ConfigError(f"--state: {name!r} is none of {', '.join(KINDS)}")
    return named


class _Run:
    """One run: opens both sides, and closes them."""

    def __init__(
        self,
        here: Mapping[str, str],
        there: Mapping[str, str],
        states: list[str],
        *,
        watch_s: float,
        force: bool,
        resume: bool,
    ) -> None:
        self._here, self._there, self.states = here, there, states
        self._watch_s = watch_s
        self._force = force
        self._resume = resume
        self._clock = SystemClock()
        self.moved: list[Moved] = []
        self.compared: list[Compared] = []

    async def count(self, bar: Progress) -> None:
        """Only count what there is."""
        source = open_places(self._here, Path(), self._clock.wall_ms)
        try:
            self.moved = await self._copy(source, source, bar).count()
        finally:
            await _close(source)

    async def copy(self, bar: Progress) -> None:
        """Copy and compare; raises ConfigError or StorageError."""
        source = open_places(self._here, Path(), self._clock.wall_ms)
        try:
            await self._see_it_stands_still(source)
            target = open_places(self._there, Path(), self._clock.wall_ms)
            try:
                copying = self._copy(source, target, bar)
                await copying.prepare(resume=self._resume)
                await copying.run()
                self.compared = await copying.check()
            finally:
                await _close(target)
        finally:
            await _close(source)

    def _copy(self, source: _Places, target: _Places, bar: Progress) -> Copy:
        tasks: dict[str, TaskID] = {}

        def tell(doing: str, state: str, number: int) -> None:
            shown_as = f"{doing} {state}"
            if shown_as not in tasks:
                tasks[shown_as] = bar.add_task(shown_as, total=None)
            bar.advance(tasks[shown_as], number)

        return Copy(
            {name: source[name].records for name in self.states},
            {name: target[name].records for name in self.states},
            {name: shown(self._here[name], "--from") for name in self.states},
            wall_ms=self._clock.wall_ms,
            tell=tell,
        )

    async def _see_it_stands_still(self, source: _Places) -> None:
        if self._force:
            return
        on = list(await source["route"].route.servers())
        if on:
            raise ConfigError(
                f"--from: devices are on servers {', '.join(map(str, on))}: stop push first; if "
                "these were killed, --force"
            )
        records = {name: source[name].records for name in NAMES}
        if beating := await alive(records, lambda: asyncio.sleep(self._watch_s)):
            raise ConfigError(
                f"--from: processes of push use {', '.join(beating)}: stop them first, or --force"
            )


async def _close(places: _Places) -> None:
    for place in dict.fromkeys(places.values()):
        # What it was asked for is answered.
        with suppress(StorageError):
            await place.close()


def _progress(*, quiet: bool) -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TextColumn("{task.completed:,.0f} records"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=quiet or not sys.stderr.isatty(),
    )


def _tell(run: _Run, *, as_json: bool, dry_run: bool) -> None:
    same = all(each.same for each in run.compared)
    if as_json:
        rows = [each._asdict() for each in run.moved] or [_row(each) for each in run.compared]
        print_json({"ok": same, "copied": not dry_run, "records": rows})
    else:
        console.print(_counted(run.moved) if dry_run else _table(run.compared))
        console.print("Routes are not copied: devices connect again.")
        if "meta" in run.states:
            console.print(_SEALED)
        if not dry_run:
            console.print(_verdict(run.compared), highlight=False)
    if not same:
        raise typer.Exit(1)


def _verdict(found: list[Compared]) -> str:
    wrong = [f"{each.state}: {each.kind}" for each in found if not each.same]
    if wrong:
        return (
            f"[red]not the same[/]: {', '.join(wrong)}. Did a process write meanwhile? Leave push "
            "where it was, and run this again with --resume, or into an empty place."
        )
    return f"[green]ok[/] {sum(each.target.number for each in found):,} records, all the same"


def _row(each: Compared) -> dict[str, Any]:
    return {
        "state": each.state,
        "kind": each.kind,
        "source": each.source.number,
        "target": each.target.number,
        "source_digest": f"{each.source.digest:032x}",
        "target_digest": f"{each.target.digest:032x}",
        "expired": each.expired,
        "same": each.same,
    }


def _counted(moved: list[Moved]) -> Table:
    table = Table("state", "kind")
    for column in ("records", "expired, left out"):
        table.add_column(column, justify="right")
    for each in moved:
        table.add_row(each.state, each.kind, f"{each.number:,}", f"{each.expired:,}")
    return table


def _table(found: list[Compared]) -> Table:
    table = Table("state", "kind")
    for column in ("source", "target", "expired, left out"):
        table.add_column(column, justify="right")
    for column in ("source's digest", "target's digest", ""):
        table.add_column(column)
    for each in found:
        counts = (
            f"{number:,}" for number in (each.source.number, each.target.number, each.expired)
        )
        verdict = "[green]same[/]" if each.same else "[red]different[/]"
        digests = (each.source.text, each.target.text)
        table.add_row(each.state, each.kind, *counts, *digests, verdict)
    return table
