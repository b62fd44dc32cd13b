"""`chappe pipeline run`: events of nodes in, tables out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from chappe.cli.options import Json
from chappe.cli.pipeline import flags
from chappe.cli.pipeline.extra import extra
from chappe.cli.pipeline.folders import check_folders
from chappe.cli.pipeline.holding import holding
from chappe.cli.pipeline.keeping import compact, expire
from chappe.cli.pipeline.stages import Stages
from chappe.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from chappe.cli.pipeline.telling import Telling

# A stream looks for files at least so often.
_EVERY_MAX_S = 86_400
# And so often for journals that nobody writes any more. Longer than it takes whoever watches over
# nodes to start one anew.
_SEAL_EVERY_S = 60

app = typer.Typer(help="Tables of what happened, made by Spark.", no_args_is_help=True)
app.command()(compact)
app.command()(expire)


@app.callback()
def pipeline() -> None:
    """Take what comes before the command."""


@app.command()
def run(
    events: flags.Events,
    tables: flags.Tables,
    stream: flags.Streams = False,
    once: flags.Once = False,
    every: flags.Every = 10.0,
    master: flags.Master = None,
    remote: flags.Remote = None,
    memory: flags.Memory = "2g",
    sla_ms: flags.SlaMs = None,
    queue_sla_ms: flags.QueueSlaMs = None,
    overtaken_ms: flags.OvertakenMs = None,
    grace_ms: flags.GraceMs = None,
    reconnect_ms: flags.ReconnectMs = None,
    watermark_ms: flags.WatermarkMs = None,
    as_json: Json = False,
) -> None:
    """Take the events that are new, and make anew the tables of the hours that they touch.

    What was taken is not taken twice, and a run that was interrupted is finished first.
    """
    with extra():
        # Here and not above: Spark is not installed everywhere, and slow to import.
        from chappe.cli.pipeline.telling import Telling  # noqa: PLC0415
        from chappe.pipeline.job import due  # noqa: PLC0415
        from chappe.pipeline.job import run as run_job  # noqa: PLC0415
        from chappe.pipeline.options import Options, choose  # noqa: PLC0415
        from chappe.pipeline.remains import clear  # noqa: PLC0415
        from chappe.pipeline.session import SessionOptions, session  # noqa: PLC0415
        from chappe.pipeline.stream import stream as stream_jobs  # noqa: PLC0415
        from chappe.pipeline.version import check_version  # noqa: PLC0415
    if once and not stream:
        raise ConfigError("--once: only with --stream; without it a run ends by itself")
    if not 0 < every <= _EVERY_MAX_S:
        raise ConfigError(f"--every: {every:g} is not above 0 and at most {_EVERY_MAX_S:,}")
    place = SessionOptions(master=master, remote=remote, memory=memory)
    said = {
        "sla_ms": sla_ms,
        "queue_sla_ms": queue_sla_ms,
        "overtaken_ms": overtaken_ms,
        "grace_ms": grace_ms,
        "reconnect_ms": reconnect_ms,
        "watermark_ms": watermark_ms,
    }
    given = {name: ms for name, ms in said.items() if ms is not None}
    Options(**given)
    check_folders(events)
    _check_apart(events, tables)
    stages = Stages(shown=not as_json)
    telling = Telling(events, tables, stages, as_json=as_json, each=stream)
    with telling.to_the_end(), holding(tables), stages:
        check_version(tables)
        options = choose(tables, given)
        _seal(events, stages, telling)
        if stream:
            interval_s = None if once else every
            with session(place, stages.ended) as spark:
                stream_jobs(
                    spark,
                    events,
                    tables,
                    options,
                    interval_s=interval_s,
                    progress=stages.ended,
                    done=telling.done,
                ).wait(_sealing(events, telling), _SEAL_EVERY_S)
        elif due(events, tables):
            with session(place, stages.ended) as spark:
                telling.done(run_job(spark, events, tables, options, stages.ended))
        else:
            clear(tables)


def _seal(events: list[Path], stages: Stages, telling: Telling) -> None:
    """Nodes that were killed left events in their journals: take those, too."""
    from chappe.node.sealing import seal  # noqa: PLC0415, as above

    with stages.timed("journals of nodes that are gone"):
        for folder in events:
            with _named(folder):
                telling.sealed(folder, seal(folder))


def _sealing(events: list[Path], telling: Telling) -> Callable[[], None]:
    """What does the same for nodes that are killed while a stream goes on."""
    from chappe.node.sealing import Sealer  # noqa: PLC0415, as above

    sealers = {folder: Sealer(folder) for folder in events}

    def look() -> None:
        for folder, sealer in sealers.items():
            with _named(folder):
                telling.sealed(folder, sealer.look())

    return look


@contextmanager
def _named(folder: Path) -> Iterator[None]:
    """Say where it is that something cannot be read or written."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{folder}: {error}") from None


def _check_apart(events: list[Path], tables: Path) -> None:
    """A stream takes all that is in a folder of events."""
    for folder in events:
        if tables.resolve().is_relative_to(folder.resolve()):
            raise ConfigError(
                f"--tables: {tables} is in {folder}, which is for events; tables need a folder of "
                "their own"
            )
