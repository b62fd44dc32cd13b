"""`chappe pipeline run`: events of nodes in, tables out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from chappe.cli.options import Json, console, print_json
from chappe.cli.pipeline.extra import extra
from chappe.cli.pipeline.holding import holding
from chappe.cli.pipeline.keeping import compact, expire
from chappe.cli.pipeline.stages import Stages
from chappe.errors import ConfigError, StorageError

app = typer.Typer(help="Tables of what happened, made by Spark.", no_args_is_help=True)

_WORDS = {
    "files": "files taken",
    "events": "events in them",
    "quarantined": "rows put aside",
    "hours": "hours made anew",
    "paths": "messages in them",
}

Events = Annotated[
    list[Path], typer.Option(help="A folder of events: DATA/events of a node; may be said again.")
]
Tables = Annotated[Path, typer.Option(help="Where the tables are, or will be.")]
Master = Annotated[
    str | None, typer.Option(help="Spark's master: local[N], spark://HOST:PORT. Else this machine.")
]
Remote = Annotated[
    str | None, typer.Option(help="A server of Spark Connect: sc://HOST:PORT. Needs no Java here.")
]
Memory = Annotated[str, typer.Option(help="Memory of Spark's process here.")]


app.command()(compact)
app.command()(expire)


@app.callback()
def pipeline() -> None:
    """Take what comes before the command."""


@app.command()
def run(
    events: Events,
    tables: Tables,
    stream: Annotated[
        bool, typer.Option("--stream", help="Go on with what comes, until interrupted.")
    ] = False,
    once: Annotated[
        bool, typer.Option("--once", help="With --stream: end when all that is there is taken.")
    ] = False,
    every: Annotated[
        float, typer.Option(help="With --stream: look for new files every so many seconds.")
    ] = 10.0,
    master: Master = None,
    remote: Remote = None,
    memory: Memory = "2g",
    sla_ms: Annotated[int, typer.Option(help="What is delivered later than this is late.")] = 1000,
    queue_sla_ms: Annotated[
        int, typer.Option(help="What waits in a queue for longer than this is late.")
    ] = 60_000,
    as_json: Json = False,
) -> None:
    """Take the events that are new, and make anew the tables of the hours that they touch.

    What was taken is not taken twice, and a run that was interrupted is finished first.
    """
    with extra():
        # Here and not above: Spark is not installed everywhere, and slow to import.
        from chappe.pipeline.job import NOTHING, due  # noqa: PLC0415
        from chappe.pipeline.job import run as run_job  # noqa: PLC0415
        from chappe.pipeline.options import Options  # noqa: PLC0415
        from chappe.pipeline.session import SessionOptions, session  # noqa: PLC0415
        from chappe.pipeline.stream import stream as stream_jobs  # noqa: PLC0415
        from chappe.pipeline.version import check_version  # noqa: PLC0415
    if once and not stream:
        raise ConfigError("--once: only with --stream; without it a run ends by itself")
    if every <= 0:
        raise ConfigError(f"--every: {every} is not above 0")
    place = SessionOptions(master=master, remote=remote, memory=memory)
    options = Options(sla_ms=sla_ms, queue_sla_ms=queue_sla_ms)
    _check_folders(events)
    with holding(tables), Stages(shown=not as_json) as stages:
        check_version(tables)
        _seal(events, stages)
        if stream:
            interval_s = None if once else every
            with session(place, stages.ended) as spark:
                stream_jobs(
                    spark, events, tables, options, interval_s=interval_s, progress=stages.ended
                ).awaitTermination()
            return
        counts = NOTHING
        if due(events, tables):
            with session(place, stages.ended) as spark:
                counts = run_job(spark, events, tables, options, stages.ended)
    if as_json:
        print_json({"ok": True, **counts._asdict(), "seconds": stages.seconds})
    else:
        _tell(counts._asdict(), events, tables)


def _seal(events: list[Path], stages: Stages) -> None:
    """Nodes that were killed left events in their journals: take those, too."""
    from chappe.node.sealing import seal  # noqa: PLC0415, as above

    with stages.timed("journals of nodes that are gone"):
        for folder in events:
            try:
                seal(folder)
            except OSError as error:
                raise StorageError(f"{folder}: {error}") from None


def _check_folders(events: list[Path]) -> None:
    for folder in events:
        if not folder.is_dir():
            raise ConfigError(f"--events: there is no folder {folder}")


def _tell(counts: dict[str, Any], events: list[Path], tables: Path) -> None:
    if not counts["files"] and not (tables / "paths").is_dir():
        folders = ", ".join(map(str, events))
        console.print(
            f"nothing new: no events in {folders} yet; a node that runs writes them there within "
            "seconds (events.seal_s), unless events.enabled is false",
            highlight=False,
            soft_wrap=True,
        )
        return
    if counts["spoiled"]:
        console.print(
            f"{counts['spoiled']} files could not be read, and are taken no more: see the table "
            "spoiled",
            highlight=False,
        )
    if not counts["files"]:
        console.print(f"nothing new; {tables} stays as it is", highlight=False)
        return
    for name, words in _WORDS.items():
        console.print(f"{counts[name]:>12,}  {words}", highlight=False)
    look = f"look at them: chappe report --tables {tables} --out report.html"
    console.print(f"{'':>12}  {look}", highlight=False, soft_wrap=True)
