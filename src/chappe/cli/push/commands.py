"""The commands of `chappe push`, by name."""

from __future__ import annotations

import typer

from chappe.cli.push import apps, clients, devices, jobs, listening, notes, storage, topics

app = typer.Typer(
    help="Push to devices: apps, tokens, users, sending, jobs, topics; and devices to try it with.",
    no_args_is_help=True,
)
app.add_typer(apps.app, name="app")
for name, command in (
    ("token", clients.token),
    ("revoke", clients.revoke),
    ("send", notes.send),
    ("cancel", notes.cancel),
    ("replace", notes.replace),
    ("jobs", jobs.jobs),
    ("job", jobs.job),
    ("topics", topics.topics),
    ("listen", listening.listen),
    ("devices", devices.devices),
):
    app.command(name)(command)
app.add_typer(clients.users, name="user")
app.add_typer(clients.clients, name="client")
app.add_typer(topics.topic, name="topic")
app.add_typer(storage.app, name="storage")
