"""`chappe events`: what nodes recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from chappe.cli.options import Json, console, print_json
from chappe.errors import StorageError
from chappe.node.sealing import Sealed
from chappe.node.sealing import seal as seal_logs

app = typer.Typer(help="What nodes recorded of the life of messages.", no_args_is_help=True)


@app.callback()
def events() -> None:
    """Take what comes before the command."""


@app.command()
def seal(
    folder: Annotated[Path, typer.Argument(help="A folder of events: DATA/events of a node.")],
    as_json: Json = False,
) -> None:
    """Make tables of what nodes left behind that are gone, killed ones too.

    Nodes that run do so themselves, and are passed over.
    """
    try:
        sealed = seal_logs(folder)
    except OSError as error:
        raise StorageError(f"{folder}: {error}") from None
    if as_json:
        print_json(msgspec.to_builtins(sealed))
    else:
        _tell(sealed)
    if sealed.failed:
        raise typer.Exit(1)


def _tell(sealed: Sealed) -> None:
    console.print(f"{sealed.events} events of {len(sealed.nodes)} nodes", highlight=False)
    for node in sealed.alive:
        console.print(f"{node} runs: it does so itself", highlight=False)
    if sealed.damaged:
        console.print(f"{sealed.damaged} places could not be read", highlight=False)
    for node, reason in sealed.failed.items():
        console.print(f"{node}: its log could not be copied: {reason}", highlight=False)
