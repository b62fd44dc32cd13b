"""Options that every command which runs nodes takes; what only one of them says is with it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Dev = Annotated[bool, typer.Option("--dev", help="Loopback only; a hello needs no token.")]
Config = Annotated[Path | None, typer.Option(help="A TOML file with any option.")]
Host = Annotated[str | None, typer.Option(help="Where to listen [127.0.0.1].")]
Data = Annotated[Path | None, typer.Option(help="Data folder [.chappe].")]
ClusterSecretFile = Annotated[
    Path | None, typer.Option(help="The secret that nodes prove themselves with.")
]
