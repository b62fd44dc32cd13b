"""The command line."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from chappe.cli import events, messages, pipeline, push, queue, rooms, token
from chappe.cli.cluster import cluster
from chappe.cli.interrupt import Interrupted
from chappe.cli.report import report
from chappe.cli.serve import serve
from chappe.cli.status import status
from chappe.cli.trace import trace
from chappe.errors import ChappeError, ConfigError

app = typer.Typer(
    help="A realtime messaging platform: users, topics, queues, rooms and push over one hub.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (serve, messages.send, messages.publish, messages.listen, status, cluster):
    app.command()(command)
app.add_typer(events.app, name="events")
app.add_typer(pipeline.app, name="pipeline")
app.command()(trace)
app.command()(report)
app.add_typer(push.app, name="push")
app.add_typer(queue.app, name="queue")
app.add_typer(rooms.app, name="rooms")
app.add_typer(token.app, name="token")


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # noqa: PLC0415, slow, and seldom wanted

        typer.echo(f"chappe {version('chappe')}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Take what comes before the command."""


def _code_of(error: ChappeError) -> int:
    """As shells have it: 2 for what was said wrongly, 130 for what was interrupted."""
    if isinstance(error, Interrupted):
        return 130
    return 2 if isinstance(error, ConfigError) else 1


def main() -> None:
    """Run the command line; an error of ours is one line, not a stack trace."""
    try:
        app()
    except ChappeError as error:
        line = Text.assemble(("chappe: ", "bold red"), str(error))
        Console(stderr=True, soft_wrap=True).print(line)
        raise SystemExit(_code_of(error)) from None
    except RecursionError:
        # Nothing of ours goes deep but data: what a file, a peer or a message brought.
        Console(stderr=True).print(Text("chappe: JSON here is nested too deeply to be read"))
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
