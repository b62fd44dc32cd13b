"""The commands of `chappe queue`, by name."""

from __future__ import annotations

import typer

from chappe.cli.queue import consumers, consuming, definition, letters, messages, transfer

app = typer.Typer(
    help="Durable queues: make them, send, consume, look inside, export and import.",
    no_args_is_help=True,
)
for name, command in (
    ("create", definition.create),
    ("list", definition.list_),
    ("show", definition.show_),
    ("delete", definition.delete),
    ("send", messages.send),
    ("consume", consuming.consume),
    ("browse", messages.browse),
    ("cancel", messages.cancel),
    ("register", consumers.register),
    ("unregister", consumers.unregister),
    ("export", transfer.export),
    ("import", transfer.import_),
    ("promote", definition.promote),
):
    app.command(name)(command)
app.add_typer(letters.app, name="dead")
