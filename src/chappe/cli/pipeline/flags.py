"""Options of `chappe pipeline run`, and what is said of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_AS_BEFORE = "as in the first run over the tables, else {}"

Events = Annotated[
    list[Path], typer.Option(help="A folder of events: DATA/events of a node; may be said again.")
]
Tables = Annotated[Path, typer.Option(help="Where the tables are, or will be.")]
Streams = Annotated[
    bool, typer.Option("--stream", help="Go on with what comes, until interrupted.")
]
Once = Annotated[
    bool, typer.Option("--once", help="With --stream: end when all that is there is taken.")
]
Every = Annotated[
    float, typer.Option(help="With --stream: look for new files every so many seconds.")
]
Master = Annotated[
    str | None, typer.Option(help="Spark's master: local[N], spark://HOST:PORT. Else this machine.")
]
Remote = Annotated[
    str | None, typer.Option(help="A server of Spark Connect: sc://HOST:PORT. Needs no Java here.")
]
Memory = Annotated[str, typer.Option(help="Memory of Spark's process here; 512m at least.")]

SlaMs = Annotated[
    int | None,
    typer.Option(
        help="What is delivered later than this is late.",
        show_default=_AS_BEFORE.format("1000"),
    ),
]
QueueSlaMs = Annotated[
    int | None,
    typer.Option(
        help="What waits in a queue for longer than this is late.",
        show_default=_AS_BEFORE.format("60000"),
    ),
]
OvertakenMs = Annotated[
    int | None,
    typer.Option(
        help="What waits in a queue when messages this much younger were handed out is lost.",
        show_default=_AS_BEFORE.format("3600000, an hour"),
    ),
]
GraceMs = Annotated[
    int | None,
    typer.Option(
        help="A node that told nothing while others tell of times this much later is dead.",
        show_default=_AS_BEFORE.format("120000"),
    ),
]
ReconnectMs = Annotated[
    int | None,
    typer.Option(
        help="Who is back this soon after a session ended came back.",
        show_default=_AS_BEFORE.format("60000"),
    ),
]
WatermarkMs = Annotated[
    int | None,
    typer.Option(
        help="What is told this much later than the latest that was told before is put aside.",
        show_default=_AS_BEFORE.format("604800000, a week"),
    ),
]
