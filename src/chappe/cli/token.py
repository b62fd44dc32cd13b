"""`chappe token`: make keys, and tokens for trying things out."""

from __future__ import annotations

import math
import os
import secrets
import time
from pathlib import Path
from typing import Annotated

import jwt
import typer

from chappe.access.token import AUDIENCE, PATTERN, SECRET_BYTES_MIN
from chappe.address import check_app, parse_address
from chappe.cli.options import console
from chappe.errors import ConfigError

app = typer.Typer(help="Make keys and tokens.", no_args_is_help=True)

Patterns = Annotated[list[str] | None, typer.Option(help="An address, or a prefix and *.")]


@app.command("key")
def make_key(file: Annotated[Path, typer.Argument(help="Where to write it.")]) -> None:
    """Make a random secret for HS256, readable by its owner only."""
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise ConfigError(f"FILE: {error}") from None
    with os.fdopen(descriptor, "w") as out:
        out.write(secrets.token_urlsafe(SECRET_BYTES_MIN * 2) + "\n")
    # A path is one word to whoever reads it by a program.
    console.print(f"[green]wrote[/] {file}", highlight=False, soft_wrap=True)


@app.command("create")
def create(
    key_file: Annotated[Path, typer.Option(help="The secret, as `chappe token key` made it.")],
    as_: Annotated[str, typer.Option("--as", help="user:NAME.")],
    key_id: Annotated[str, typer.Option(help="The key's id in the node's options.")] = "main",
    for_app: Annotated[str, typer.Option("--app", help="The key's app.")] = "default",
    send: Patterns = None,
    publish: Patterns = None,
    subscribe: Patterns = None,
    provide: Patterns = None,
    manage: Patterns = None,
    admin: Patterns = None,
    hours: Annotated[float, typer.Option(help="How long it is good.")] = 1.0,
) -> None:
    """Print a token for a user."""
    parse_address(as_, "--as")
    check_app(for_app)
    if not 0 < hours < math.inf:
        raise ConfigError("--hours: must be above 0, and end")
    for pattern in (
        *(send or ()),
        *(publish or ()),
        *(subscribe or ()),
        *(provide or ()),
        *(manage or ()),
        *(admin or ()),
    ):
        if not PATTERN.fullmatch(pattern):
            raise ConfigError(f"{pattern!r} is neither an address nor a prefix that ends in *")
    try:
        secret = key_file.read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"--key-file: {error}") from None
    now = int(time.time())
    claims = {
        "app": for_app,
        "aud": AUDIENCE,
        "sub": as_,
        "jti": secrets.token_hex(8),
        "iat": now,
        "exp": now + int(hours * 3600),
        "send": send or [],
        "publish": publish or [],
        "subscribe": subscribe or [],
        "provide": provide or [],
        "manage": manage or [],
        "admin": admin or [],
    }
    typer.echo(jwt.encode(claims, secret, algorithm="HS256", headers={"kid": key_id}))
