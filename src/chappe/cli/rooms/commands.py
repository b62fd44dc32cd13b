"""The commands of `chappe rooms`, by name."""

from __future__ import annotations

import typer

from chappe.cli.rooms import doubling, looking, up, weighing

app = typer.Typer(
    help="Rooms over many processes: start them, double partitions, look at roles and links.",
    no_args_is_help=True,
)
for name, command in (
    ("up", up.up),
    ("double", doubling.double),
    ("status", looking.status),
    ("links", looking.links),
    ("members", looking.members),
    ("weigh", weighing.weigh),
):
    app.command(name)(command)
