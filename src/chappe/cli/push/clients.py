"""`chappe push token`, `revoke`, `user` and `client`: devices, and whose they are."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from chappe.cli.options import console, print_json
from chappe.cli.push.asker import AppAsker, asking
from chappe.cli.push.tables import client_view, clients_table, ticket_view, unmarked
from chappe.cli.push.which import Client, Device, which
from chappe.errors import ConfigError

users = typer.Typer(help="Whose devices are whose.", no_args_is_help=True)
clients = typer.Typer(help="What is known of a device.", no_args_is_help=True)
User = Annotated[str, typer.Argument(help="The user's name, as the app has it.")]


@asking
def token(
    asker: AppAsker,
    device: Annotated[str, typer.Argument(help="The device's id, which it made itself.")],
) -> None:
    """Get a token for a device, as an app's own server does: with it, the device connects."""
    answer = asker.node().post("/v1/push/tokens", {"device": device})
    _show(asker, answer, ticket_view(answer))


@asking
def revoke(
    asker: AppAsker,
    client: Client = None,
    device: Device = None,
    stolen: Annotated[
        Path | None, typer.Option(help="Only this token, which is in a file; - reads input.")
    ] = None,
) -> None:
    """Refuse all tokens of a device, or one, and end its connection."""
    if stolen is None:
        body = which(client, device)
    elif client is not None or device is not None:
        raise ConfigError("--stolen: not together with --client or --device")
    else:
        body = {"token": _read(stolen)}
    answer = asker.node().post("/v1/push/tokens/revoke", body)
    count = answer["revoked"]
    told = f"{count} token{'s' if count != 1 else ''} of {answer['client']} refused from now on"
    asker.tell(answer, f"[green]ok[/] {told}")


@users.command("bind")
@asking
def bind(asker: AppAsker, user: User, client: Client = None, device: Device = None) -> None:
    """Say that a device is a user's, and nobody else's."""
    body = {"user": user, **which(client, device)}
    answer = asker.node().post("/v1/push/users/bind", body)
    asker.tell(answer, f"[green]ok[/] {_named(answer)} is {unmarked(user)}'s")


@users.command("unbind")
@asking
def unbind(asker: AppAsker, client: Client = None, device: Device = None) -> None:
    """Say that a device is nobody's any more."""
    answer = asker.node().post("/v1/push/users/unbind", which(client, device))
    asker.tell(answer, f"[green]ok[/] {_named(answer)} is nobody's")


@users.command("list")
@asking
def list_(asker: AppAsker, user: User) -> None:
    """List the devices of a user."""
    answer = asker.node().get("/v1/push/users", user=user)
    _show(asker, answer, clients_table(answer))


@clients.command("show")
@asking
def show(asker: AppAsker, client: Client = None, device: Device = None) -> None:
    """Show a device: whose it is, which comet it is on, and its topics."""
    answer = asker.node().get("/v1/push/clients", **which(client, device))
    _show(asker, answer, client_view(answer))


@clients.command("remove")
@asking
def remove(
    asker: AppAsker,
    client: Client = None,
    device: Device = None,
    yes: Annotated[bool, typer.Option("--yes", help="With what waits for it.")] = False,
) -> None:
    """Forget a device, its tokens, its topics and what waits for it."""
    meant = which(client, device)
    if not yes:
        raise ConfigError("--yes: missing; the device would be forgotten with what waits for it")
    answer = asker.node().delete("/v1/push/clients", **meant)
    asker.tell(answer, f"[green]ok[/] {_named(answer)} is forgotten")


def _named(answer: dict[str, Any]) -> str:
    return str(answer["client"]["client"])


def _read(file: Path) -> str:
    try:
        token = (sys.stdin.read() if str(file) == "-" else file.read_text()).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--stolen: {error}") from None
    if not token:
        raise ConfigError("--stolen: the token must not be empty")
    return token


def _show(asker: AppAsker, answer: dict[str, Any], view: Any) -> None:
    if asker.as_json:
        print_json(answer)
    else:
        console.print(view, soft_wrap=True)
